"""Weights that are written tensor by tensor, by one rank or two, and read by any number."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.distributed as dist
import torch.multiprocessing as mp
from ranks import rank_of, save_parts
from test_sharded_load import FULL, LORA, critic, items, learner, odd_rows, qwen3

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import JointAction
from pettingllms.learners.tensor_files import TensorFiles
from pettingllms.learners.weight_stream import collect, pieces, write_tensors
from pettingllms.learners.weights import fingerprint, from_bytes, load_tensors, tensors_in, to_bytes
from pettingllms.policies.files import read_content
from pettingllms.policies.tensor_shards import grouped

MODELS = odd_rows, qwen3


def trained(folder: Path, kind: str) -> Any:
    """A learner or critic after one update."""
    if kind == "critic":
        made: Any = critic(folder, False)
        made.train([JointAction(("x",), (item,)) for item in items()], 1)
        return made
    made = learner(folder, FULL if kind == "full" else LORA)
    made.train(next(iter(made._spec.policies)), items(), 1)
    return made


def in_memory(made: Any) -> tuple[dict[str, bytes], str]:
    if hasattr(made, "saved"):
        return made.saved(), ""
    policy = next(iter(made._spec.policies))
    files, weight_hash = made.files(policy)
    return {**files, **made.state(policy)}, weight_hash


def on_disk(made: Any, folder: Path) -> tuple[dict[str, Any], str]:
    folder.mkdir(parents=True, exist_ok=True)
    weight_hash = ""
    if not hasattr(made, "saved"):
        policy = next(iter(made._spec.policies))
        (folder / "published").mkdir(exist_ok=True)
        weight_hash = made.write(policy, folder / "published")
    save_parts(made, next(iter(getattr(made._spec, "policies", ["critic"]))), folder)
    if dist.is_initialized():
        dist.barrier()
    return found_in(folder), weight_hash


def found_in(folder: Path) -> dict[str, Any]:
    """Files of a checkpoint, in parts if several ranks wrote them."""
    return grouped({path.name: path for path in folder.iterdir() if path.is_file()})


def load(made: Any, files: Any) -> None:
    given = (files,) if hasattr(made, "saved") else (next(iter(made._spec.policies)), files)
    made.load(*given)


def check(folder: Path, kind: str, place: Path) -> None:
    """Files on disk are those in memory, and a fresh learner that loads them holds the same."""
    made = trained(folder, kind)
    contents, weight_hash = in_memory(made)
    paths, again = on_disk(made, place)
    if not dist.is_initialized() or dist.get_rank() == 0:
        assert contents.keys() == paths.keys()
        assert all(read_content(paths[name]) == content for name, content in contents.items())
        assert weight_hash == again
        assert len(contents) >= 2
    else:
        assert not contents
    fresh = critic(folder, False) if kind == "critic" else learner(folder, made._spec.policies)
    assert in_memory(fresh)[0] != contents or not contents
    load(fresh, paths)
    assert in_memory(fresh)[0] == contents


def check_all(rank: int, folder: Path) -> None:
    with rank_of(rank, 2, folder):
        for make in MODELS:
            for kind in ("full", "lora", "critic"):
                place = folder / "two" / make.__name__ / kind
                check(folder / make.__name__, kind, place)
        refuse_another_model(folder)
        if rank == 0:
            short = folder / "short.safetensors"
            short.write_bytes((place / "critic.rank-0-of-2.safetensors").read_bytes()[:-4])
            with pytest.raises(OSError, match="truncated"):
                tensors_in(short)


def refuse_another_model(folder: Path) -> None:
    made = learner(folder / "qwen3", FULL)
    other = found_in(folder / "two" / "odd_rows" / "full")
    with pytest.raises(LearnerError, match="'f' belong to another model"):
        made.load("f", other)


@pytest.mark.slow
def test_two_ranks_write_the_files_of_one(tmp_path: Path) -> None:
    for make in MODELS:
        make(tmp_path / make.__name__)
    mp.spawn(check_all, args=(tmp_path,), nprocs=2)
    for make in MODELS:
        for kind in ("full", "lora", "critic"):
            two = tmp_path / "two" / make.__name__ / kind
            one = learner_of(tmp_path / make.__name__, kind)
            load(one, found_in(two))
            found = in_memory(one)[0]
            assert found == {name: read_content(file) for name, file in found_in(two).items()}


def learner_of(folder: Path, kind: str) -> Any:
    if kind == "critic":
        return critic(folder, False)
    return learner(folder, FULL if kind == "full" else LORA)


TENSORS = {
    "b": torch.arange(7.0),
    "a": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)),
    "count": torch.tensor(3),
    "empty": torch.zeros(0, 4),
}


def test_written_file_has_the_bytes_of_one_in_memory(tmp_path: Path) -> None:
    write_tensors(tmp_path / "f", TENSORS)
    assert (tmp_path / "f").read_bytes() == to_bytes(TENSORS)
    weights = {name: TENSORS[name] for name in "ab"}
    assert write_tensors(tmp_path / "w", weights) == fingerprint(weights)
    changed = {**weights, "a": weights["a"] + 1}
    assert write_tensors(tmp_path / "w", changed) != fingerprint(weights)


def test_pieces_and_collect_of_one_rank_are_the_tensors() -> None:
    assert all(torch.equal(t, collect(TENSORS)[n]) for n, t in TENSORS.items())
    (piece,) = pieces(TENSORS["a"])
    assert torch.equal(piece, TENSORS["a"].flatten())


def test_tensors_of_a_path_are_read_into_parameters(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(to_bytes(TENSORS))
    stored, whole = tensors_in(tmp_path / "f"), from_bytes(to_bytes(TENSORS))
    assert stored.keys() == whole.keys()
    assert int(stored["count"]) == 3
    matrix = torch.zeros(3, 5, dtype=torch.float64)  # cast
    load_tensors({"a": matrix}, {"a": stored["a"]}, "a test")
    assert torch.equal(matrix, TENSORS["a"].double())
    with pytest.raises(ValueError, match="shape"):
        stored["a"].fill(torch.zeros(5, 3))


def test_a_large_tensor_is_cast_in_blocks(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("pettingllms.learners.tensor_files.BLOCK", 4)
    (tmp_path / "f").write_bytes(to_bytes(TENSORS))
    files = TensorFiles([tmp_path / "f"])
    part = torch.zeros(2, 5, dtype=torch.bfloat16)
    files.read_elements("a", 5, part)
    assert torch.equal(part, TENSORS["a"][1:].bfloat16())
    assert files.same_bits("a", "a")
    assert not files.same_bits("a", "b")


@pytest.mark.parametrize("content", [b"", b"\x09" + b"\0" * 7 + b"{}", (2**40).to_bytes(8)])
def test_a_file_that_is_not_one_of_tensors_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(OSError, match="not a safetensors file"):
        TensorFiles([tmp_path / "f"])


def test_a_file_with_wrong_offsets_is_rejected(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}
    header = json.dumps({"a": entry}).encode()
    (tmp_path / "f").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(OSError, match="wrong offsets"):
        TensorFiles([tmp_path / "f"])
