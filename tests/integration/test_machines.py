"""Runs over three machines that are namespaces of this one: equal results, also after faults."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from campaign import Row, Table, episodes_of, is_equal
from drive_machines import DISTURBED_STEPS
from machines import inside, why_impossible
from running import HERE, cli, config_of, environment, metrics_of, write_config

import pettingllms
from pettingllms.cluster.start import ARITHMETIC

REASON = why_impossible()
pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=REASON or "possible"),
]
SECONDS = 600
TABLE_NAMES = {
    "killed": "learner rank killed on its machine",
    "partitioned": "network partition",
    "lossy": "30% of packets lost",
}
Binds = Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model; the engine in plain PyTorch serves it, so vLLM is not imported."""
    from pettingllms.models import make_tiny

    texts = [f"You are role{n % 2}. Count on from {n}: It was said: '{n}'." for n in range(99)]
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny", texts=texts, vocab_size=400)


@pytest.fixture
def config(tiny: Path, tmp_path: Path) -> Path:
    made = config_of(
        {"a": {"kind": "full", "model": str(tiny), "lr": 1e-3}},
        {"role0": "a", "role1": "a"},
        inference={"engine": "torch", "num_replicas": 2},
        learner={"num_ranks": 2, "max_batch_tokens": 64},
        train={"num_steps": 2, "save_every": 2},
        cluster={"device": "cpu"},
    )
    return write_config(tmp_path / "config.toml", made)


def drive(scenario: str, config: Path, folder: Path, binds: Binds | None = None) -> dict[str, Any]:
    """Run a scenario on three machines."""
    script = str(HERE / "drive_machines.py")
    command = inside(script, scenario, str(config), str(folder), json.dumps(binds or {}))
    variables = {n: v for n, v in environment().items() if n not in ARITHMETIC}
    variables |= {
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    variables.pop("PETTINGLLMS_TRACEBACK")
    log = folder / "drive.log"
    with log.open("wb") as file:
        subprocess.run(
            command, stdout=file, stderr=file, env=variables, timeout=SECONDS, check=False
        )
    result = folder / "result.json"
    assert result.is_file(), log.read_text(errors="replace")[-3000:]
    found: dict[str, Any] = json.loads(result.read_text())
    print(found["said"][-3000:])
    return found


def hashes(run: Path) -> Any:
    """The weight hashes of the newest checkpoint."""
    newest = max((run / "checkpoints").glob("step-*"))
    return json.loads((newest / "manifest.json").read_text())["state"]["weight_hashes"]


def test_three_machines_equal_one(config: Path, tmp_path: Path) -> None:
    found = drive("finished", config, tmp_path)
    assert found["code"] == 0, found["said"]
    assert found["machines"]["NodeRank"] == 2, "both ranks were on one machine"
    assert found["machines"]["TorchEngine"] == 2, "both engines were on one machine"
    reached = json.loads(found["facts"].splitlines()[-1])
    assert len(reached) == 3
    assert all(values == ARITHMETIC for values in reached.values()), reached
    cli(tmp_path / "one.log", "train", config, "--out", tmp_path / "one")
    assert metrics_of(tmp_path / "cluster") == metrics_of(tmp_path / "one")
    assert hashes(tmp_path / "cluster") == hashes(tmp_path / "one") != {}
    assert episodes_of(tmp_path / "cluster") == episodes_of(tmp_path / "one") != Counter()


def test_what_differs_on_a_machine_is_named(config: Path, tiny: Path, tmp_path: Path) -> None:
    seeds = Path(pettingllms.__file__).with_name("seeds.py")
    metadata = Path(str(distribution("peft").locate_file(""))) / next(
        str(file) for file in distribution("peft").files or () if file.name == "METADATA"
    )
    own = {
        str(metadata): metadata.read_text().replace(distribution("peft").version, "0.0.1"),
        str(seeds): seeds.read_text() + "\n",
        str(tiny / "config.json"): (tiny / "config.json").read_text() + "\n",
    }
    binds = {}
    for at, (place, text) in enumerate(own.items()):
        (tmp_path / f"bound{at}").write_text(text)
        binds[place] = str(tmp_path / f"bound{at}")
    said = drive("refused", config, tmp_path, {"worker2": binds})
    assert said["code"] == 2
    for part in ("10.77.0.3: has peft 0.0.1", "source of pettingllms differs", "config.json"):
        assert part in said["said"], part
    assert "10.77.0.2" not in said["said"]
    assert "Traceback" not in said["said"]


def test_a_lost_head_has_a_message(config: Path, tmp_path: Path) -> None:
    found = drive("headless", config, tmp_path)
    assert found["code"], found["said"]
    for part in ("head of the Ray cluster, 10.77.0.1:6379", "resume"):
        assert part in found["said"], part
    assert "Traceback" not in found["said"]


RESTARTED = "the learner was restarted in"
NETWORK_FAULTS = {
    "killed": ["of the learner of 'a'", "10.77.0.", RESTARTED],
    "partitioned": ["of the learner of 'a'", "left the cluster", RESTARTED],
    "lossy": [],
}


@pytest.mark.faults
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("scenario", NETWORK_FAULTS)
def test_a_run_continues_after_a_fault_between_machines(
    scenario: str, seed: int, config: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config.write_text(config.read_text().replace("seed = 7", f"seed = {seed}"))
    found = drive(scenario, config, tmp_path)
    assert found["code"] == 0, found["said"]
    for part in NETWORK_FAULTS[scenario]:
        assert part in found["said"], part
    assert "Traceback" not in found["said"]
    assert found.get("received", 700) < 900, "no packets were lost"
    steps = f"train.num_steps={DISTURBED_STEPS}"
    cli(tmp_path / "one.log", "train", config, steps, "--out", tmp_path / "one")
    equal = is_equal(tmp_path / "cluster", tmp_path / "one")
    if page := request.config.getoption("--faults-table"):
        name, told = TABLE_NAMES[scenario], "".join(NETWORK_FAULTS[scenario][-1:])
        where = f"step {found['step']}"
        row = Row(name, seed, where, "continued", told, found["seconds"], 0, 0, equal)
        Table(Path(page)).add([row])
    assert equal
