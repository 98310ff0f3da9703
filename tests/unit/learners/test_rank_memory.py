"""Host memory of a rank follows its shard, at load with its checks, publication and save."""

import gc
import json
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.distributed as dist
import torch.multiprocessing as mp
from ranks import rank_of

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.sharding import trim_heap

NUM_LAYERS, SIZE, MLP_SIZE, VOCABULARY = 36, 512, 2048, 1024
LAYER = 4 * (4 * SIZE**2 + 3 * SIZE * MLP_SIZE)
"""Bytes of a layer in float32."""
WHOLE = NUM_LAYERS * LAYER + 4 * VOCABULARY * SIZE
SHARD = WHOLE / 2
MARGIN = 1.2
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


def measure(rank: int, folder: Path) -> None:
    with rank_of(rank, 2, folder):
        warm = learner(folder / "small")  # libraries load modules on first use
        update(warm)
        (folder / f"warm{rank}").mkdir()
        warm.save("p", folder / f"warm{rank}")
        del warm
        peak = Peak()
        made = learner(folder / "model")
        peak.note("load")
        (folder / "out").mkdir(exist_ok=True)
        made.write("p", folder / "out")
        peak.note("publish")
        update(made)
        trim_heap()
        peak.restart()
        made.save("p", folder / "out")
        peak.note("save")
        del made
        gc.collect()
        trim_heap()
        peak.restart()
        made = learner(folder / "model")
        made.load("p", {path.name: path for path in (folder / "out").iterdir()})
        peak.note("resume")
        (folder / f"{rank}.json").write_text(json.dumps(peak.found))


@pytest.mark.slow
def test_memory_of_a_rank_follows_its_shard(tmp_path: Path) -> None:
    make_model(tmp_path / "small", 1)
    make_model(tmp_path / "model", NUM_LAYERS)
    mp.spawn(measure, args=(tmp_path,), nprocs=2)
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        shards = {name: peak / SHARD for name, peak in found.items()}
        print(rank, {name: round(number, 3) for name, number in shards.items()})
        assert found["load"] <= MARGIN * SHARD + LAYER, shards
        assert found["publish"] <= MARGIN * SHARD + LAYER, shards
        assert found["save"] <= MARGIN * 3 * SHARD + LAYER, shards  # with two moments
        assert found["resume"] <= MARGIN * 3 * SHARD + LAYER, shards
        assert found["load"] >= SHARD  # it is the model that is measured
    written = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert written >= WHOLE
