"""Reading a prompt once for all of its replies changes nothing but the time it takes."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from pettingllms.config import LearnerConfig, LossConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.learners import reading as module
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner, LearnerSpec
from pettingllms.learners.model import Padded
from pettingllms.models import make_tiny

POLICIES = {"full": FullPolicy(model="m", lr=1e-3), "lora": LoraPolicy(model="m", lr=1e-3)}


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("m") / request.param
    return make_tiny(folder, request.param, texts=["a b c"], hidden_size=64)


def siblings(num_prompts: int = 3, replies: int = 5) -> list[Item]:
    rng = np.random.default_rng(0)
    items = []
    for _ in range(num_prompts):
        prompt = rng.integers(5, 200, rng.integers(20, 30)).astype(np.int32)
        for _ in range(replies):
            reply = rng.integers(5, 200, rng.integers(1, 6)).astype(np.int32)
            logprobs = rng.normal(-3, 1, len(reply)).astype(np.float32)
            items.append(Item(prompt, reply, logprobs, float(rng.normal())))
    return items


def moved(model: Path, kind: str) -> tuple[list[np.ndarray], dict[str, torch.Tensor], dict]:
    spec = LearnerSpec(
        model, {"p": POLICIES[kind]}, LearnerConfig(), LossConfig(kl=0.1, entropy=0.1), 8, 3
    )
    made = Learner(spec)
    before = made.logprobs("p", siblings())
    measured = made.train("p", siblings(), 1)
    gradients = {name: p.detach().clone() for name, p in made._parameters("p").items()}
    return before, gradients, measured


@pytest.mark.parametrize("kind", list(POLICIES))
def test_log_probs_losses_and_updates_are_the_same(
    model: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Padded(siblings(), torch.device("cpu"), may_share=True).is_shared
    shared, shared_weights, shared_numbers = moved(model, kind)
    monkeypatch.setattr(module, "WORTH_SHARING", 0.0)
    whole, whole_weights, whole_numbers = moved(model, kind)
    for one, other in zip(shared, whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert shared_numbers["loss"] == pytest.approx(whole_numbers["loss"], abs=1e-5)
    assert shared_numbers["grad_norm"] == pytest.approx(whole_numbers["grad_norm"], rel=1e-4)
    moved_by = max(float((shared_weights[n] - whole_weights[n]).abs().max()) for n in whole_weights)
    assert moved_by < 1e-4  # Adam's first step moves every weight by 1e-3


def test_prompts_that_all_differ_are_read_in_one_piece() -> None:
    assert not Padded(siblings(8, 1), torch.device("cpu"), may_share=True).is_shared
    assert not Padded(siblings(), torch.device("cpu")).is_shared
