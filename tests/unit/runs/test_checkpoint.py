import json
from pathlib import Path

import pytest

from pettingllms.config.co_players import CoPlayersConfig
from pettingllms.config.league import LeagueConfig
from pettingllms.errors import CheckpointError, ConfigError
from pettingllms.league.co_players import CoPlayers
from pettingllms.league.league import League
from pettingllms.league.pool import Snapshot
from pettingllms.runs.checkpoint import (
    MANIFEST,
    State,
    Writer,
    checkpoints,
    load_checkpoint,
    open_checkpoint,
)
from pettingllms.runs.folder import RunFolder

FILES = {"p": {"weights": b"1234", "optimizer": b"56"}, "q": {"weights": b""}}


def saved(root: Path, step: int = 3, keep: int = 5) -> Path:
    state = State(step, 6, {"p": 3}, {"p": "abc"}, {"baseline": 0.5})
    writer = Writer(root, state)
    for policy, files in FILES.items():
        writer.add(policy, files)
    return writer.finish(keep)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    state, files = load_checkpoint(saved(tmp_path))
    assert state == State(3, 6, {"p": 3}, {"p": "abc"}, {"baseline": 0.5})
    assert files == FILES


def test_a_state_with_what_earlier_versions_wrote_is_loaded(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["state"]["under_way"] = ["t"]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert load_checkpoint(folder) == load_checkpoint(saved(tmp_path / "new"))


def test_a_state_that_nobody_ever_wrote_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    whole = (folder / MANIFEST).read_text()
    for state in ({"steps": 3}, [3], None, "step"):
        (folder / MANIFEST).write_text(json.dumps(json.loads(whole) | {"state": state}))
        with pytest.raises(CheckpointError, match="no readable manifest"):
            load_checkpoint(folder)


@pytest.mark.parametrize(
    "name",
    [
        "policies/p/weights",
        "policies/p/optimizer",
        "policies/q/weights",
        MANIFEST,
    ],
)
@pytest.mark.parametrize("how", ["cut", "gone", "other"])
def test_a_checkpoint_that_is_not_whole_is_never_loaded(
    tmp_path: Path, name: str, how: str
) -> None:
    folder = saved(tmp_path)
    file = folder / name
    content = file.read_bytes()
    if how == "gone":
        file.unlink()
    elif how == "cut" and content:
        file.write_bytes(content[:-1])
    else:
        file.write_bytes(b"x" + content)
    with pytest.raises(CheckpointError):
        load_checkpoint(folder)


def test_the_newest_whole_one_is_taken_up(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    for step in (1, 2, 3):
        saved(root, step)
    (root / "step-000003" / "policies" / "p" / "weights").write_bytes(b"12")
    (root / ".unfinished-step-000004").mkdir()
    said: list[str] = []
    found = RunFolder(tmp_path).load(said.append)
    assert found is not None
    assert found[0].step == 2
    assert "truncated" in said[0]


def test_a_save_that_dies_leaves_nothing_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dies)
        with pytest.raises(OSError, match="disk full"):
            saved(tmp_path)
    assert list(checkpoints(tmp_path)) == []
    load_checkpoint(saved(tmp_path))


def test_old_ones_are_deleted(tmp_path: Path) -> None:
    for step in range(1, 6):
        saved(tmp_path, step, keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000005", "step-000004"]


def test_rewinding_forgets_what_came_after(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step}) + "\n" for step in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines) + '{"step": 4, "cu')
    (tmp_path / "episodes").mkdir()
    (tmp_path / "skipped").mkdir()
    for step in (1, 2, 3):
        (tmp_path / "episodes" / f"step-{step:06d}.jsonl").touch()
        (tmp_path / "skipped" / f"step-{step:06d}-some-policy-7.jsonl").touch()
    RunFolder(tmp_path).rewind(2)
    assert (tmp_path / "metrics.jsonl").read_text() == "".join(lines[:2])
    names = sorted(path.name for path in (tmp_path / "episodes").iterdir())
    assert names == ["step-000001.jsonl", "step-000002.jsonl"]
    names = sorted(path.name for path in (tmp_path / "skipped").iterdir())
    assert names == [f"step-00000{step}-some-policy-7.jsonl" for step in (1, 2)]


def test_a_folder_without_a_run_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pettingllms train"):
        RunFolder(tmp_path / "none").config()
    assert RunFolder(tmp_path).load(print) is None


def test_load_checkpoint_reads_the_state_of_version_0_1(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["state"] = {
        "step": 3,
        "marks": {"p": "abc"},
        "under_way": ["t"],
        "level": 2,
        "recent": [0.5],
        "league": {"pool": []},
        "company": {"phase": 1},
        "guard": {"p/repetition": 2.0},
        "good": 1,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    state, _ = load_checkpoint(folder)
    assert state.components == {
        "curriculum": {"level": 2, "recent": [0.5]},
        "league": {"pool": []},
        "co_players": {"phase": 1},
        "guard": {"p/repetition": 2.0},
    }
    assert (state.step, state.weight_hashes, state.good) == (3, {"p": "abc"}, 1)


def test_load_checkpoint_reads_the_pool_and_the_players_of_version_0_1(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    manifest = json.loads((folder / MANIFEST).read_text())
    pool = [{"policy": "p", "step": 2, "version": 2, "mark": "abc"}]
    manifest["state"] = {
        "step": 3,
        "league": {
            "pool": pool,
            "payoff": {"p": {"script:careless": [1, 0, 2]}, "script:careless": {"p": [2, 0, 1]}},
            "ratings": {"p": [25.0, 8.0], "script:careless~0.3": [26.0, 8.0]},
            "counts": {"snapshots": 1, "anchors": 3, "exploiters": 0, "self": 0},
        },
        "company": {"phase": 1, "since": 2, "recent": [], "switches": [], "pool": pool, "best": {}},
        "guard": {"p/anchor_careless": 1, "best/p/anchor_careless": 0.5},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    components = load_checkpoint(folder)[0].components
    league = League(LeagueConfig(snapshot_every=1), "p", ("x", "o"), seed=0)
    league.load_state_dict(components["league"])
    assert league.pool == [Snapshot("p", 2, 2, "abc")]
    assert league.payoff.between("p", "script:noisy").losses == 2
    assert set(league.ratings.to_json()) == {"p", "script:noisy~0.3"}
    co_players = CoPlayers(CoPlayersConfig(phases=[]), {"x": "p", "o": "p"}, ("o",), seed=0)
    co_players.load_state_dict(components["co_players"])
    assert co_players.pool == league.pool
    assert components["guard"] == {"p/anchor_noisy": 1, "best/p/anchor_noisy": 0.5}


def test_files_that_learners_wrote_are_added_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = Writer(Path("run"), State(step=2))
    folder = writer.folder("a")
    assert folder.is_absolute()
    (folder / "model.safetensors").write_bytes(b"written")
    (tmp_path / "elsewhere").write_bytes(b"linked")
    writer.add("a", {"model.safetensors": folder / "model.safetensors", "config": b"in memory"})
    writer.add("b", {"model.safetensors": tmp_path / "elsewhere"})
    done = writer.finish(5)
    _, files = load_checkpoint(done)
    assert files == {
        "a": {"model.safetensors": b"written", "config": b"in memory"},
        "b": {"model.safetensors": b"linked"},
    }
    _, paths = open_checkpoint(Path("run") / done.name)
    assert paths["a"]["config"] == done / "policies" / "a" / "config"
    (done / "policies" / "a" / "model.safetensors").write_bytes(b"writtex")
    with pytest.raises(CheckpointError, match="does not match its hash"):
        open_checkpoint(done)
