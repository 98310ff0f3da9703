"""Host memory of a rank follows its shard, at load with its checks, publication and save."""

import gc
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.distributed as dist
import torch.multiprocessing as mp
from ranks import rank_of, save_parts

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.sharding import trim_heap
from pettingllms.policies.tensor_shards import grouped
from pettingllms.transfer.group import Group
from pettingllms.transfer.link import Link, Manifest

NUM_LAYERS, SIZE, MLP_SIZE, VOCABULARY = 36, 512, 2048, 1024
LAYER = 4 * (4 * SIZE**2 + 3 * SIZE * MLP_SIZE)
"""Bytes of a layer in float32."""
WHOLE = NUM_LAYERS * LAYER + 4 * VOCABULARY * SIZE
SHARD = WHOLE / 2
MARGIN = 1.2
BUCKET = 64 * 2**20
CPU = torch.device("cpu")
LINK = Link("", 2, 600.0)
pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="measures memory with Linux's /proc"
)


def make_model(folder: Path, num_layers: int) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=SIZE, intermediate_size=MLP_SIZE,
        num_hidden_layers=num_layers, num_attention_heads=8, num_key_value_heads=8,
        tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
    return folder


def status(field: str) -> int:
    """Memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def learner(folder: Path) -> Learner:
    policies = {"p": FullPolicy(model="m", lr=1e-3)}
    return Learner(LearnerSpec(folder, policies, LearnerConfig(), loss_config(), 16, 5))


def update(made: Learner) -> None:
    ids = np.arange(5, 11, dtype=np.int32)
    made.train("p", [Item(ids, ids, -np.ones(6, np.float32), 1.0)], 1)


class Peak:
    """The largest memory since the baseline was taken."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        gc.collect()
        trim_heap()
        self.restart()
        self._baseline = status("VmRSS")

    def restart(self) -> None:
        dist.barrier()
        Path("/proc/self/clear_refs").write_text("5")

    def note(self, name: str) -> None:
        self.found[name] = float(status("VmHWM") - self._baseline)
        self.restart()


def receive(folder: Path) -> None:
    """Take the stream of rank 0, as an engine would."""
    group = Group(replace(LINK, rendezvous=f"file://{folder / 'meet' / 'store'}"), 1, CPU)
    plain = json.loads((folder / "manifest.json").read_text())
    for bucket in Manifest.from_plain(plain).buckets():
        group.broadcast(torch.empty(sum(entry.numel for entry in bucket)))
    group.close()


def stream(made: Learner, folder: Path) -> None:
    made.bucket_bytes = BUCKET  # type: ignore[misc]
    if dist.get_rank() == 0:
        (folder / "manifest.json").write_text(json.dumps(asdict(made.manifest("p", "float32"))))
    made.join_stream(replace(LINK, rendezvous=f"file://{folder / 'meet' / 'store'}"))
    made.send("p", "float32")


def measure(rank: int, folder: Path) -> None:
    if rank == 2:
        receive(folder)
        return
    with rank_of(rank, 2, folder):
        warm = learner(folder / "small")  # libraries load modules on first use
        update(warm)
        save_parts(warm, "p", folder / f"warm{rank}")
        del warm
        peak = Peak()
        made = learner(folder / "model")
        peak.note("load")
        (folder / "out").mkdir(exist_ok=True)
        made.write("p", folder / "out")
        peak.note("publish")
        stream(made, folder)
        peak.note("stream")
        update(made)
        trim_heap()
        peak.restart()
        save_parts(made, "p", folder / "saved", background=False)
        peak.note("save")
        save_parts(made, "p", folder / "saved")
        peak.note("save from a copy")
        del made
        gc.collect()
        trim_heap()
        peak.restart()
        made = learner(folder / "model")
        made.load("p", grouped({path.name: path for path in (folder / "saved").iterdir()}))
        peak.note("resume")
        (folder / f"{rank}.json").write_text(json.dumps(peak.found))


@pytest.mark.slow
def test_memory_of_a_rank_follows_its_shard(tmp_path: Path) -> None:
    make_model(tmp_path / "small", 1)
    make_model(tmp_path / "model", NUM_LAYERS)
    (tmp_path / "meet").mkdir()
    mp.spawn(measure, args=(tmp_path,), nprocs=3)
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        shards = {name: peak / SHARD for name, peak in found.items()}
        print(rank, {name: round(number, 3) for name, number in shards.items()})
        assert found["load"] <= MARGIN * SHARD + LAYER, shards
        assert found["publish"] <= MARGIN * SHARD + LAYER, shards
        assert found["stream"] <= MARGIN * SHARD + BUCKET, shards
        assert found["save"] <= MARGIN * 3 * SHARD + LAYER, shards  # with two moments
        assert found["save from a copy"] <= MARGIN * 6 * SHARD + LAYER, shards
        assert found["resume"] <= MARGIN * 3 * SHARD + LAYER, shards
        assert found["load"] >= SHARD  # it is the model that is measured
    written = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert written >= WHOLE
