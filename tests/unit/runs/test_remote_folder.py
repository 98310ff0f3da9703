"""Finished checkpoints in a second place, by any file system of fsspec."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from test_checkpoint import FILES, saved

from pettingllms.errors import CheckpointError, ConfigError
from pettingllms.policies.files import read_content
from pettingllms.runs.checkpoint import MANIFEST, checkpoints, load_checkpoint, open_checkpoint
from pettingllms.runs.remote_folder import RemoteFolder, fetch_missing, require_unused

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(params=["path", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {"path": str(tmp_path / "far"), "file": f"file://{tmp_path}/far"}
    return places.get(request.param, f"memory://{uuid4().hex}/far")


def copied(url: str, root: Path, *numbers: int, keep: int = 9, **options: int) -> RemoteFolder:
    remote = RemoteFolder(url)
    given = {"keep_every": 0, "good": 0, **options}
    for step in numbers:
        assert remote.copy(saved(root, step, keep=99), keep, **given) == ""
    return remote


def test_what_was_copied_is_fetched(url: str, tmp_path: Path) -> None:
    copied(url, tmp_path / "here", 3)
    said: list[str] = []
    fetch_missing(url, tmp_path / "there", said.append)
    (found,) = checkpoints(tmp_path / "there")
    assert load_checkpoint(found)[1] == FILES
    assert said == [f"fetched step-000003 from {url}"]


def test_a_run_with_checkpoints_fetches_none(url: str, tmp_path: Path) -> None:
    copied(url, tmp_path / "here", 3)
    saved(tmp_path / "there", 1)
    fetch_missing(url, tmp_path / "there", print)
    assert [path.name for path in checkpoints(tmp_path / "there")] == ["step-000001"]
    fetch_missing("", tmp_path / "none", print)
    assert not (tmp_path / "none").exists()


def test_old_ones_go_and_those_of_every_nth_step_and_the_good_one_stay(
    url: str, tmp_path: Path
) -> None:
    remote = copied(url, tmp_path, 1, 2, 3, 4, 5, 6, keep=1, keep_every=4, good=3)
    assert remote.names() == ["step-000006", "step-000004", "step-000003"]


def test_a_copy_of_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    far = tmp_path / "far"
    copied(str(far), tmp_path / "here", 1)
    (far / "step-000001").rename(far / "step-000001-backup")
    remote = copied(str(far), tmp_path / "here", 2, 3, keep=1, keep_every=4)
    assert remote.names() == ["step-000003"]
    assert (far / "step-000001-backup" / MANIFEST).exists()


def test_later_ones_go_once_a_run_went_back(url: str, tmp_path: Path) -> None:
    remote = copied(url, tmp_path / "here", 1, 2, 3)
    shutil.rmtree(tmp_path / "here" / "step-000002")
    assert remote.copy(saved(tmp_path / "here", 2), 9, 0, 0) == ""
    assert remote.names() == ["step-000002", "step-000001"]


def test_one_without_a_manifest_does_not_count_and_a_damaged_one_is_skipped(
    url: str, tmp_path: Path
) -> None:
    remote = copied(url, tmp_path / "here", 1, 2, 3)
    files, root = remote._fs, remote._root
    files.rm(f"{root}/step-000003/{MANIFEST}")
    assert remote.names() == ["step-000002", "step-000001"]
    with files.open(f"{root}/step-000002/policies/p/weights", "wb") as file:
        file.write(b"4321")
    said: list[str] = []
    fetch_missing(url, tmp_path / "there", said.append)
    assert [path.name for path in checkpoints(tmp_path / "there")] == ["step-000001"]
    assert "does not match its hash" in said[0]
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["step-000001"]


@pytest.mark.parametrize("evil", ["../../../evil", "p/../../../../evil", "/ABSOLUTE/evil"])
def test_a_manifest_writes_nothing_outside_of_its_folder(evil: str, tmp_path: Path) -> None:
    far, there = tmp_path / "far", tmp_path / "a" / "b" / "there"
    copied(str(far), tmp_path / "here", 3)
    evil = evil.replace("/ABSOLUTE", str(tmp_path / "a"))
    manifest = far / "step-000003" / MANIFEST
    data = json.loads(manifest.read_text())
    data["files"] = {evil: "0", **data["files"]}
    manifest.write_text(json.dumps(data))
    source = Path(f"{far}/step-000003/policies/{evil}")
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("run me")
    said: list[str] = []
    fetch_missing(str(far), there, said.append)
    assert not list((tmp_path / "a").rglob("evil"))
    assert "is not in its folder" in said[0]
    shutil.copytree(far / "step-000003", there / "step-000003")
    with pytest.raises(CheckpointError, match="is not in its folder"):
        open_checkpoint(there / "step-000003")


def test_a_file_that_changed_before_it_was_copied_is_reported(url: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "here")
    (folder / "policies/p/weights").write_bytes(b"9999")
    remote = RemoteFolder(url)
    problem = remote.copy(folder, 9, 0, 0)
    assert "does not match its hash and was not copied" in problem
    assert "train.checkpoint_folder" in problem
    assert remote.names() == []


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Files that may still be sent before the connection is lost, if there is a number."""
    left: list[int] = []
    plain = RemoteFolder._send

    def send(self: RemoteFolder, *args: Any) -> None:
        if left:
            if not left[0]:
                raise OSError("connection lost")
            left[0] -= 1
        plain(self, *args)

    monkeypatch.setattr(RemoteFolder, "_send", send)
    return left


def test_a_copy_that_fails_leaves_nothing_behind(
    url: str, tmp_path: Path, failing: list[int]
) -> None:
    remote = RemoteFolder(url)
    failing.append(1)
    assert "connection lost" in remote.copy(saved(tmp_path / "here", 3), 1, 0, 0)
    failing.clear()
    assert remote.copy(saved(tmp_path / "here", 4), 1, 0, 0) == ""
    remote._fs.invalidate_cache()
    left = [str(path).rpartition("/")[2] for path in remote._fs.ls(remote._root, detail=False)]
    assert left == ["step-000004"]


def test_a_step_that_is_copied_again_is_incomplete_until_all_of_it_is_there(
    url: str, tmp_path: Path, failing: list[int]
) -> None:
    remote = copied(url, tmp_path / "here", 3)
    failing.append(1)
    assert "connection lost" in remote.copy(saved(tmp_path / "again", 3), 9, 0, 0)
    assert remote.names() == []
    failing.clear()
    assert remote.copy(saved(tmp_path / "once_more", 3), 9, 0, 0) == ""
    assert remote.names() == ["step-000003"]


def test_later_ones_stay_until_an_earlier_one_is_copied(
    url: str, tmp_path: Path, failing: list[int]
) -> None:
    remote = copied(url, tmp_path / "here", 5)
    failing.append(1)
    assert "connection lost" in remote.copy(saved(tmp_path / "back", 3), 1, 0, 0)
    assert remote.names() == ["step-000005"]


def test_a_folder_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "far").write_text("a file")
    problem = RemoteFolder(str(tmp_path / "far")).copy(saved(tmp_path / "here"), 9, 0, 0)
    assert f"was not copied to {tmp_path / 'far'}" in problem


def test_a_new_run_does_not_mix_with_another(url: str, tmp_path: Path) -> None:
    require_unused("")
    require_unused(url)
    copied(url, tmp_path, 7)
    with pytest.raises(ConfigError, match="has checkpoints already, up to step-000007"):
        require_unused(url)


def test_an_unknown_kind_of_url_and_a_missing_package_name_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CheckpointError, match=r"train\.checkpoint_folder: cannot open nope://x"):
        RemoteFolder("nope://x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(CheckpointError, match=r"pip install 'pettingllms\[remote\]'"):
        RemoteFolder("memory://x")


def test_files_in_parts_are_copied_as_they_are(url: str, tmp_path: Path) -> None:
    """A checkpoint of two ranks, whose parts are one file again after it was fetched."""
    from pettingllms.policies.tensor_shards import Shards, make_header
    from pettingllms.runs.checkpoint import State, Writer

    writer = Writer(tmp_path / "here", State(step=4))
    whole = make_header([("w", "U8", [4])]) + b"abcd"
    files: dict[str, Any] = {}
    for rank, content in enumerate((b"ab", b"cd")):
        shards = json.dumps({"w": [2 * rank, [4]]})
        header = make_header([("w", "U8", [2])], {"shards": shards})
        files[f"model.rank-{rank}-of-2.safetensors"] = header + content
    writer.add("p", files)
    assert RemoteFolder(url).copy(writer.finish(9), 9, 0, 0) == ""
    fetch_missing(url, tmp_path / "there", print)
    _, found = open_checkpoint(tmp_path / "there" / "step-000004")
    assert isinstance(found["p"]["model.safetensors"], Shards)
    assert read_content(found["p"]["model.safetensors"]) == whole
