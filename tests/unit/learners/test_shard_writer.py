"""A rank's part of a checkpoint: written from a copy, hashed as written, and merged."""

import hashlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pettingllms.errors import CheckpointError
from pettingllms.learners.shard_writer import LocalFolder, Shard, ShardWriter, SyncedFile, _content
from pettingllms.learners.tensor_files import TensorFiles
from pettingllms.learners.weights import from_bytes, tensors_in, to_bytes
from pettingllms.policies.files import copy_content, read_content
from pettingllms.policies.tensor_shards import Shards, grouped, shard_name

TENSORS = {
    "weight": torch.randn(7, 5, generator=torch.Generator().manual_seed(0)),
    "bias": torch.arange(7.0).bfloat16(),
    "one_row": torch.ones(1, 4),
    "step": torch.tensor(3),
}
WHOLE = ("step",)
"""Tensors that are not sharded."""


def written(writer: ShardWriter, name: str = "p") -> Any:
    while (found := writer.poll(name)) is None:
        time.sleep(0.001)
    return found


def shard_of(rank: int, num_ranks: int) -> Shard:
    """What FSDP2 gives a rank: equally many rows, the last ones fewer or none."""
    shard = Shard({}, {})
    for name, tensor in TENSORS.items():
        if name in WHOLE:
            if not rank:
                shard.tensors[name] = tensor
            continue
        rows = -(-tensor.shape[0] // num_ranks)
        own = tensor[rank * rows : (rank + 1) * rows]
        if own.numel() or not rank:
            shard.tensors[name] = own
            width = tensor.numel() // tensor.shape[0]
            shard.ranges[name] = (rank * rows * width, list(tensor.shape))
    return shard


def write_shards(folder: Path, num_ranks: int) -> Any:
    """The files of so many ranks, as what reads a checkpoint gets them."""
    folder.mkdir(exist_ok=True)
    for rank in range(num_ranks):
        content = b"".join(_content(shard_of(rank, num_ranks)))
        (folder / shard_name("f.safetensors", rank, num_ranks)).write_bytes(content)
    return grouped({path.name: path for path in folder.iterdir()})["f.safetensors"]


@pytest.mark.parametrize("num_ranks", [2, 3, 5, 8])
def test_parts_of_any_number_of_ranks_are_the_file_of_one(tmp_path: Path, num_ranks: int) -> None:
    shards = write_shards(tmp_path / "parts", num_ranks)
    assert isinstance(shards, Shards)
    assert len(shards.parts) == num_ranks
    assert read_content(shards) == to_bytes(TENSORS)
    copy_content(shards, tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == to_bytes(TENSORS)


@pytest.mark.parametrize("num_ranks", [2, 3, 5])
def test_any_range_is_read_from_parts(tmp_path: Path, num_ranks: int) -> None:
    files = TensorFiles([write_shards(tmp_path / "parts", num_ranks)])
    flat = TENSORS["weight"].flatten()
    for start in range(0, 35, 3):
        for end in range(start, 36, 4):
            out = torch.full((end - start,), -9.0)
            files.read_elements("weight", start, out)
            assert torch.equal(out, flat[start:end])
    assert torch.equal(files.read("bias"), TENSORS["bias"])
    assert int(tensors_in(write_shards(tmp_path / "again", 2))["step"]) == 3


def test_a_part_that_is_missing_or_of_another_save_is_refused(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "parts", 3)
    files = {path.name: path for path in (tmp_path / "parts").iterdir()}
    del files["f.rank-1-of-3.safetensors"]
    with pytest.raises(CheckpointError, match=r"found the parts of ranks \[0, 2\] only"):
        grouped(files)
    gap = Shards((shards.parts[0], shards.parts[2]))
    with pytest.raises(OSError, match="begins at element 30, not 15"):
        TensorFiles([gap])
    with pytest.raises(OSError, match="a part is missing"):
        TensorFiles([Shards(shards.parts[:1])])


def test_what_is_saved_is_the_state_at_the_start_of_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on, and changes all tensors before the thread writes the first byte."""
    go = threading.Event()
    plain = SyncedFile.write

    def late(self: SyncedFile, content: memoryview) -> None:
        assert go.wait(10)
        plain(self, content)

    monkeypatch.setattr(SyncedFile, "write", late)
    tensors = {name: tensor.clone() for name, tensor in TENSORS.items()}
    writer = ShardWriter(torch.device("cpu"))
    writer.start("p", LocalFolder(tmp_path), {"f.safetensors": tensors}, {"c.json": b"{}"}, True)
    assert writer.poll("p") is None
    for tensor in tensors.values():
        tensor.zero_()
    go.set()
    found = written(writer)
    assert not found.problem
    assert (tmp_path / "f.safetensors").read_bytes() == to_bytes(TENSORS)
    assert found.hashes == {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("f.safetensors", "c.json")
    }


def test_without_a_copy_the_save_is_over_when_it_returns(tmp_path: Path) -> None:
    writer = ShardWriter(torch.device("cpu"))
    writer.start("p", LocalFolder(tmp_path), {"f.safetensors": TENSORS}, {}, False)
    assert writer.poll("p") is not None
    assert (tmp_path / "f.safetensors").read_bytes() == to_bytes(TENSORS)


def test_a_full_disk_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "f.safetensors").symlink_to("/dev/full")
    writer = ShardWriter(torch.device("cpu"))
    writer.start("p", LocalFolder(tmp_path), {"f.safetensors": TENSORS}, {}, True)
    problem = written(writer).problem
    path = tmp_path / "f.safetensors"
    assert problem.startswith(f"cannot write {path}: No space left on device; free space")
    assert "train.keep_checkpoints" in problem


def test_a_fault_of_our_own_is_reported_too(tmp_path: Path) -> None:
    writer = ShardWriter(torch.device("cpu"))
    odd = {"f.safetensors": {"x": torch.zeros(3, dtype=torch.complex64)}}
    writer.start("p", LocalFolder(tmp_path), odd, {}, True)
    assert written(writer).problem.startswith("KeyError")


def test_a_large_tensor_is_written_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pettingllms.learners.shard_writer.MAX_BYTES", 16)
    blocks = list(_content(Shard({"weight": TENSORS["weight"]}, {})))
    assert max(len(block) for block in blocks[1:]) == 16
    assert torch.equal(from_bytes(b"".join(blocks))["weight"], TENSORS["weight"])
