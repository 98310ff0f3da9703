import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from pettingllms.config.co_players import CoPlayersConfig
from pettingllms.config.league import LeagueConfig
from pettingllms.errors import CheckpointError, ConfigError
from pettingllms.league.co_players import CoPlayers
from pettingllms.league.league import League
from pettingllms.league.pool import Snapshot
from pettingllms.policies.tensor_shards import Shards, make_header
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


def parts_of_two_ranks() -> dict[str, bytes]:
    """What two ranks write of a tensor of four bytes."""
    parts = {}
    for rank, content in enumerate((b"ab", b"cd")):
        header = make_header([("w", "U8", [2])], {"shards": json.dumps({"w": [2 * rank, [4]]})})
        parts[f"model.rank-{rank}-of-2.safetensors"] = header + content
    return parts


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


def test_a_state_of_an_unknown_form_is_refused(tmp_path: Path) -> None:
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
    found = RunFolder(tmp_path).open(said.append)
    assert found is not None
    assert found[0].step == 2
    assert "truncated" in said[0]


def test_a_save_that_dies_leaves_nothing_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", _full)
        with pytest.raises(OSError, match="disk full"):
            saved(tmp_path)
    assert list(checkpoints(tmp_path)) == []
    load_checkpoint(saved(tmp_path))


def test_old_ones_are_deleted(tmp_path: Path) -> None:
    for step in range(1, 6):
        saved(tmp_path, step, keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000005", "step-000004"]


def test_what_a_killed_run_left_unfinished_is_deleted_by_the_next_save(tmp_path: Path) -> None:
    left = tmp_path / ".unfinished-step-000004" / "policies" / "p"
    left.mkdir(parents=True)
    (left / "weights").write_bytes(b"12")
    saved(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000002"]


def test_leftovers_that_cannot_be_deleted_do_not_stop_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".unfinished-step-000002" / "policies" / "p").mkdir(parents=True)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", _full)
            with pytest.raises(OSError, match="disk full"):
                saved(tmp_path, 2)
    load_checkpoint(saved(tmp_path, 2))


def _full(*_: object) -> None:
    raise OSError("disk full")


def test_every_nth_and_the_last_good_one_are_kept_forever(tmp_path: Path) -> None:
    for step in range(1, 10):
        writer = Writer(tmp_path, State(step=step, good=3))
        writer.add("p", {"w": b"1"})
        writer.finish(keep=2, keep_every=4)
    kept = [path.name[-1] for path in checkpoints(tmp_path)]
    assert kept == ["9", "8", "4", "3"]


def test_a_copy_of_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    copy = tmp_path / "step-000001-backup"
    shutil.copytree(saved(tmp_path, 1), copy)
    for step in (2, 3):
        writer = Writer(tmp_path, State(step=step))
        writer.add("p", {"w": b"1"})
        writer.finish(keep=1, keep_every=4)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000003"]
    assert load_checkpoint(copy)[1] == FILES


def test_every_file_and_folder_is_synced_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a crash of the machine may leave a checkpoint whose folders are empty."""
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", sync)
    folder = saved(tmp_path)
    without_suffix = [re.sub(r"(\.unfinished-step-\d+)-\w+", r"\1", path) for path in synced]
    for path in (folder, *folder.rglob("*")):
        unfinished = str(path).replace(folder.name, f".unfinished-{folder.name}")
        assert unfinished in without_suffix, path
    assert synced[-1] == str(tmp_path)


def test_an_old_one_that_cannot_be_deleted_does_not_fail_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = saved(tmp_path, 1)

    def busy(*_: object, **__: object) -> None:
        raise OSError(16, "Device or resource busy")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", busy)
        saved(tmp_path, 2, keep=1)
    assert old.exists()
    saved(tmp_path, 3, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000003"]


def written_by_ranks(root: Path) -> Path:
    """A checkpoint whose files ranks have written and hashed themselves."""
    writer, hashes = Writer(root, State(step=2)), {}
    for name, content in parts_of_two_ranks().items():
        (writer.folder("p") / name).write_bytes(content)
        hashes[name] = hashlib.sha256(content).hexdigest()
    writer.record("p", hashes)
    return writer.finish(5)


def test_parts_of_ranks_are_one_file_of_a_checkpoint(tmp_path: Path) -> None:
    folder = written_by_ranks(tmp_path)
    whole = make_header([("w", "U8", [4])]) + b"abcd"
    assert load_checkpoint(folder)[1] == {"p": {"model.safetensors": whole}}
    _, files = open_checkpoint(folder)
    content = files["p"]["model.safetensors"]
    assert isinstance(content, Shards)
    assert [part.name for part in content.parts] == list(parts_of_two_ranks())


@pytest.mark.parametrize("how", ["cut", "altered", "gone", "not listed"])
def test_a_part_that_is_not_whole_is_refused(tmp_path: Path, how: str) -> None:
    folder = written_by_ranks(tmp_path)
    part = folder / "policies" / "p" / "model.rank-1-of-2.safetensors"
    content = part.read_bytes()
    if how == "cut":
        part.write_bytes(content[:-1])
    elif how == "altered":
        part.write_bytes(content[:-1] + b"D")
    elif how == "gone":
        part.unlink()
    else:
        manifest = json.loads((folder / MANIFEST).read_text())
        del manifest["files"]["p/model.rank-1-of-2.safetensors"]
        (folder / MANIFEST).write_text(json.dumps(manifest))
    words = {"cut": "does not match", "altered": "does not match", "gone": "cannot be read"}
    with pytest.raises(CheckpointError, match=words.get(how, r"parts of ranks \[0\] only")):
        open_checkpoint(folder)


def test_a_file_that_ranks_did_not_write_here_fails_the_save(tmp_path: Path) -> None:
    writer = Writer(tmp_path, State(step=2))
    with pytest.raises(CheckpointError, match=r"p/model\.safetensors was written by a learner"):
        writer.record("p", {"model.safetensors": "0"})


def test_checkpoints_of_earlier_versions_are_loaded_and_of_later_ones_refused(
    tmp_path: Path,
) -> None:
    folder = saved(tmp_path)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "format": 1}))
    assert load_checkpoint(folder)[1] == FILES
    (folder / MANIFEST).write_text(json.dumps({**manifest, "format": 3}))
    with pytest.raises(CheckpointError, match="has format 3, not 1 or 2"):
        load_checkpoint(folder)


def test_what_never_changes_is_linked_from_the_last_checkpoint(tmp_path: Path) -> None:
    writer = Writer(tmp_path, State(step=1))
    assert not writer.can_carry("p@1")
    writer.add("p@1", {"weights": b"1234"})
    first = writer.finish(5)
    (first / "policies" / "p@1" / "stray").write_bytes(b"of another program")
    writer = Writer(tmp_path, State(step=2))
    assert writer.can_carry("p@1")
    assert not writer.can_carry("p@2")
    writer.carry("p@1")
    second = writer.finish(1)
    assert load_checkpoint(second)[1] == {"p@1": {"weights": b"1234"}}
    assert not first.exists()


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
    assert RunFolder(tmp_path).open(print) is None


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
