"""Files of policies that are given by their content or by their path."""

import gc
import pickle
from pathlib import Path

import pytest

from pettingllms.policies.files import TemporaryFiles, read_content, write_content


def test_temporary_files_live_as_long_as_their_owner(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"w")
    files = TemporaryFiles(folder)
    assert {name: read_content(path) for name, path in files.items()} == {"model.safetensors": b"w"}
    sent = pickle.loads(pickle.dumps(files))  # noqa: S301 - made here
    assert type(sent) is dict
    assert sent == dict(files)
    del sent
    gc.collect()
    assert folder.exists()
    kept = tmp_path / "kept"
    write_content(files["model.safetensors"], kept)
    del files
    gc.collect()
    assert not folder.exists()
    assert kept.read_bytes() == b"w"


@pytest.mark.parametrize("links", [True, False])
def test_content_is_written_from_bytes_and_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", fail)
    write_content(b"abc", tmp_path / "one")
    write_content(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == b"abc" == read_content(b"abc")
    assert (tmp_path / "two").samefile(tmp_path / "one") == links


def fail(self: Path, target: Path) -> None:
    raise OSError("no links")
