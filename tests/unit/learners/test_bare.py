"""The loop that our learner is measured against does the same work: it makes the same step."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import LoraPolicy
from pettingllms.learners import plain_loop as bare
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.packing import pack_rows
from pettingllms.models import make_tiny
from pettingllms.seeds import derive_seed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bare_loop_finds_our_learners_gradients(tmp_path: Path, dtype: str) -> None:
    model = make_tiny(tmp_path / "tiny")
    policy = LoraPolicy(model=str(model))
    config = LearnerConfig(max_batch_tokens=96, dtype=dtype)
    learner = Learner(LearnerSpec(model, {"p": policy}, config, loss_config(), 64, seed=3))
    rng = np.random.default_rng(0)
    asked = [
        Item(rng.integers(4, 300, 9 + n), rng.integers(4, 300, 5 + n), np.zeros(5 + n), 1.0 - n)
        for n in range(6)
    ]
    items = [
        Item(item.prompt_ids, item.response_ids, logprobs, item.advantage)
        for item, logprobs in zip(asked, learner.logprobs("p", asked), strict=True)
    ]
    (passes,) = pack_rows(items, config.max_batch_tokens, 1)
    assert len(passes) > 1
    batches = [
        [(item.prompt_ids.tolist(), item.response_ids.tolist(), item.advantage) for item in batch]
        for batch in passes
    ]
    train = bare.load(
        model=str(model), rank=policy.rank, alpha=policy.alpha, lr=policy.lr, weight_decay=0.0,
        max_grad_norm=1.0, dtype=dtype, device="cpu", num_threads=1,
        seed=derive_seed(3, "adapter", "p"),
    )  # fmt: skip
    expected = learner.train("p", items, 0)["grad_norm"]
    near = {"float32": 1e-4, "bfloat16": 0.05}[dtype]
    assert train(batches)["grad_norm"] == pytest.approx(expected, rel=near)
