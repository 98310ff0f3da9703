"""What is sampled from is what is trained: skipped publications stop a run, engines come back."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import config_of, drive

pytestmark = pytest.mark.engine
KINDS = {
    "lora": {"kind": "lora", "rank": 8, "lr": 1e-3},
    "full": {"kind": "full", "lr": 1e-3},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_skipped_publication_stops_the_run(kind: str, tiny: Path, tmp_path: Path) -> None:
    config = config_of({"p": {**KINDS[kind], "model": str(tiny)}}, {"role0": "p", "role1": "p"})
    found = drive(tmp_path, "stale", config)
    assert "its weights were not published" in found["skipped"]
    assert "sampled by version 1 of 'p', which is at 2" in found["skipped"]
    assert found["forged"], "old weights under a new version went unnoticed"
    assert "serves version 2 of 'p', but the learner is at 3" in found["behind"]
    assert found["mended"] < 1e-3


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go; with a short name, as sockets are among them."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def test_engines_that_are_killed_come_back(tiny: Path, tmp_path: Path, scratch: Path) -> None:
    """Nothing is lost: every episode is there, by the weights of the moment. Nothing is left."""
    config = config_of(
        {"p": {**KINDS["lora"], "model": str(tiny)}},
        {"role0": "p", "role1": "p"},
        rollout={"num_samples": 16, "max_reply_tokens": 128},
    )
    found = drive(tmp_path, "killed", config)
    for outcome in found["outcomes"]:
        assert outcome["under_way"], "the engine was killed after the rollouts"
        assert outcome["episodes"] == 32
        assert outcome["failed"] == []
        assert outcome["versions"] == [1]
    assert found["same"], "the engine came back with other weights"
    assert found["gaps"]["p"] < 1e-3
    back = [text for text in found["said"] if "the engine restarted in" in text]
    assert len(back) == 2
    print(back)
    assert {path.name for path in scratch.iterdir()} <= {"ray"}  # Ray's own logs
