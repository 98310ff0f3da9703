"""Two ranks: adapters that do not learn in a step are outside of gradient reduction."""

import hashlib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.distributed as dist
import torch.multiprocessing as mp
from ranks import note, noted, rank_of
from tree_cases import siblings

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import LoraPolicy
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import make_tiny
from pettingllms.policies.files import ADAPTER_FILE

PASSES = {"one pass": 4096, "several passes": 16}


def learner(model: Path, max_tokens: int, *policies: str) -> Learner:
    """A KL penalty disables and enables adapters between the forward and the backward pass."""
    lora = {name: LoraPolicy(model="m", rank=4, lr=1e-2) for name in policies}
    config = LearnerConfig(max_batch_tokens=max_tokens)
    return Learner(LearnerSpec(model, lora, config, loss_config(kl_coef=0.1), 8, seed=3))


def train(made: Learner, policy: str, step: int) -> int:
    """Train a policy; the number of gradient elements that this rank sends into reductions."""
    with pytest.MonkeyPatch.context() as patch:
        reduce = Mock(side_effect=dist.reduce_scatter_single)
        patch.setattr(dist, "reduce_scatter_single", reduce)
        made.train(policy, siblings(), step)
    sent = [
        {**dict(zip(("output", "input"), c.args, strict=False)), **c.kwargs}
        for c in reduce.mock_calls
    ]
    return sum(call["input"].numel() for call in sent)


def weights(made: Learner) -> dict[str, str]:
    """A hash of each policy's file; only rank 0 has files."""
    files = {policy: made.files(policy)[0] for policy in made._spec.policies}
    return {p: hashlib.sha256(some.get(ADAPTER_FILE, b"")).hexdigest() for p, some in files.items()}


def compare(model: Path, max_tokens: int) -> dict[str, Any]:
    alone, three = learner(model, max_tokens, "b"), learner(model, max_tokens, "a", "b", "c")
    found: dict[str, Any] = {"alone": [], "three": [], "before": weights(three)}
    three.base_logprobs(siblings())  # disables adapters without a backward pass
    for step in (1, 2):
        found["alone"].append(train(alone, "b", step))
        found["three"].append(train(three, "b", step))
        found[f"other {step}"] = train(three, "c", step)
    return {**found, "after": weights(three), "expected": weights(alone)["b"]}


def compare_all(rank: int, num_ranks: int, folder: Path) -> None:
    with rank_of(rank, num_ranks, folder):
        found = {name: compare(folder / "tiny", size) for name, size in PASSES.items()}
        note(found, rank, num_ranks, folder)


def test_only_the_adapter_that_learns_is_reduced(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny", texts=["a b c"], hidden_size=64)
    mp.spawn(compare_all, args=(2, tmp_path), nprocs=2)
    for found in noted(2, tmp_path).values():
        assert found["alone"][0] > 0
        assert found["three"] == found["alone"]
        assert found["other 1"] == found["other 2"] == found["alone"][0]
        before, after = found["before"], found["after"]
        assert after["a"] == before["a"]
        assert after["c"] != before["c"]
        assert after["b"] == found["expected"], "bit-equal to a learner of this policy alone"
