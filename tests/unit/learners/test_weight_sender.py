"""Weights that leave a learner's shards in buckets, for receivers in other processes."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.multiprocessing as mp
from ranks import rank_of
from test_sharded_load import FULL, LORA, items, learner, odd_rows, qwen3

from pettingllms.errors import LearnerError
from pettingllms.learners.weight_sender import shard_hash
from pettingllms.learners.weights import from_bytes
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE
from pettingllms.transfer.group import DTYPES, Group
from pettingllms.transfer.link import Link, Manifest

BUCKET = 3000
"""Bytes, so that there are many buckets."""
DTYPE_OF_TURN = ("float32", "bfloat16")


def sha(tensor: Any) -> str:
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def link_in(folder: Path, name: str, members: int) -> Link:
    return Link(f"file://{folder / name / 'store'}", members, 30.0)


def receive(group: Group, manifest: Manifest, num_buckets: int = 10**6) -> dict[str, Any]:
    found = {}
    for _, bucket in zip(range(num_buckets), manifest.buckets(), strict=False):
        flat = torch.empty(sum(e.numel for e in bucket), dtype=DTYPES[manifest.dtype])
        group.broadcast(flat)
        parts = flat.split([entry.numel for entry in bucket])
        found |= {e.name: p.view(e.shape) for e, p in zip(bucket, parts, strict=True)}
    return found


def manifest_in(folder: Path, name: str, made: Any = None, dtype: Any = "float32") -> Manifest:
    """Left by rank 0, as the driver hands it to engines."""
    path = folder / f"{name}.json"
    if made is not None:
        plain = made.manifest("f", dtype)
        text = json.dumps([plain.dtype, plain.entries, plain.bucket_bytes])
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").rename(path)
    dtype, entries, size = json.loads(path.read_text())
    return Manifest.from_plain({"dtype": dtype, "entries": entries, "bucket_bytes": size})


def work(number: int, folder: Path) -> None:
    """Two ranks, and two receivers. The first receiver leaves in the middle of the second round."""
    if number < 2:
        with rank_of(number, 2, folder):
            send_all(folder, number)
    else:
        torch.set_num_threads(1)
        receive_all(folder, number - 2)


def send_all(folder: Path, rank: int) -> None:
    made: Any = learner(folder / "model", FULL)
    made.bucket_bytes = BUCKET
    made.train("f", items(), 1)
    before = made.weight_hash("f")
    written = folder / f"written{rank}"
    written.mkdir()
    made.write("f", written)
    for turn, dtype in enumerate(DTYPE_OF_TURN):
        if rank == 0:
            manifest_in(folder, f"turn{turn}", made, dtype)
        made.join_stream(link_in(folder, f"turn{turn}", 3))
        assert made.send("f", dtype) == before
    if rank == 0:
        manifest_in(folder, "cut", made)
    made.join_stream(link_in(folder, "cut", 3))
    if rank == 0:
        with pytest.raises(LearnerError, match="the weights of 'f' did not reach all engines"):
            made.send("f", "float32")
    else:
        made.send("f", "float32")
    made.train("f", items(), 2)  # the ranks are still in step
    made.join_stream(link_in(folder, "again", 3))
    assert made.send("f", "float32") != before


def receive_all(folder: Path, at: int) -> None:
    cpu = torch.device("cpu")
    for turn, _ in enumerate(DTYPE_OF_TURN):
        group = Group(link_in(folder, f"turn{turn}", 3), 1 + at, cpu)
        found = receive(group, manifest_in(folder, f"turn{turn}"))
        hashes = {name: sha(tensor) for name, tensor in found.items()}
        (folder / f"received{turn}.{at}").write_text(json.dumps(hashes))
        group.close()
    group = Group(link_in(folder, "cut", 3), 1 + at, cpu)
    manifest = manifest_in(folder, "cut")
    if at == 0:
        receive(group, manifest, 2)
        group.close()
    else:
        with pytest.raises(RuntimeError):
            receive(group, manifest)
    group = Group(link_in(folder, "again", 3), 1 + at, cpu)
    assert len(receive(group, manifest)) == len(manifest.entries)
    group.close()


def test_one_rank_sends_every_tensor_bit_for_bit(tmp_path: Path) -> None:
    qwen3(tmp_path / "model")
    made: Any = learner(tmp_path / "model", FULL)
    made.bucket_bytes = BUCKET
    (tmp_path / "one").mkdir()
    link = link_in(tmp_path, "one", 2)
    with ThreadPoolExecutor() as pool:
        joining = pool.submit(Group, link, 1, torch.device("cpu"))
        made.join_stream(link)
        receiving = pool.submit(receive, joining.result(), made.manifest("f", "float32"))
        made.send("f", "float32")
        found = receiving.result()
    files, _ = made.files("f")
    expected = from_bytes(files[MODEL_FILE])
    assert {n: sha(t) for n, t in found.items()} == {n: sha(t) for n, t in expected.items()}
    assert not (tmp_path / "one").exists()  # where they met


@pytest.mark.slow
def test_two_ranks_send_every_tensor_bit_for_bit(tmp_path: Path) -> None:
    odd_rows(tmp_path / "model")
    for name in ("turn0", "turn1", "cut", "again"):
        (tmp_path / name).mkdir()
    mp.spawn(work, args=(tmp_path,), nprocs=4)
    weights = from_bytes((tmp_path / "written0" / MODEL_FILE).read_bytes())
    for turn, dtype in enumerate(DTYPE_OF_TURN):
        expected = {name: sha(tensor.to(DTYPES[dtype])) for name, tensor in weights.items()}
        for at in range(2):
            assert json.loads((tmp_path / f"received{turn}.{at}").read_text()) == expected


def test_the_hash_of_shards_follows_names_shapes_and_bits() -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.zeros(2)}
    same = shard_hash({name: tensors[name].clone() for name in "ba"})
    assert shard_hash(tensors) == same
    changed = tensors["a"].clone()
    changed[1, 2] += 1e-6
    others = [
        {**tensors, "a": changed},
        {**tensors, "a": tensors["a"].view(3, 2)},
        {"a": tensors["a"], "c": tensors["b"]},
        {**tensors, "b": -tensors["b"]},
    ]
    assert len({same, *map(shard_hash, others)}) == 5


def merged_weights(folder: Path) -> tuple[Any, Any]:
    """A trained learner of adapters, and the merged base of the second one."""
    made: Any = learner(folder, {"b": LORA["b"]})
    made._spec = replace(made._spec)
    for step in range(1, 4):
        made.train("b", items(), step)
    files, _ = made.merged_files("b")
    return made, from_bytes(files[MODEL_FILE])


def test_a_merged_adapter_is_peft_s_own_merge(tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    qwen3(tmp_path / "model")
    made, weights = merged_weights(tmp_path / "model")
    files, _ = made.files("b")
    (tmp_path / "adapter").mkdir()
    for name in (ADAPTER_FILE, ADAPTER_CONFIG):
        (tmp_path / "adapter" / name).write_bytes(files[name])
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    before = {name: tensor.clone() for name, tensor in base.named_parameters()}
    merged = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload()
    expected = dict(merged.named_parameters())
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(weights[name], tensor, atol=1e-7), name
    changed = [name for name in weights if not torch.equal(weights[name], before[name])]
    assert len(changed) == 7 * sum("q_proj" in name for name in weights)


def test_a_merged_adapter_is_written_as_it_is_gathered(tmp_path: Path) -> None:
    qwen3(tmp_path / "model")
    made, weights = merged_weights(tmp_path / "model")
    made.write_merged("b", tmp_path)
    written = from_bytes((tmp_path / MODEL_FILE).read_bytes())
    assert written.keys() == weights.keys()
    assert all(torch.equal(written[name], weights[name]) for name in weights)
