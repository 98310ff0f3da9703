"""Batches whose replies share prefixes, and the gradients that a learner gives for them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pettingllms.config import CriticConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.learners.batches import Item, Pair
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.weights import set_tensor, whole

POLICIES = {
    "full": FullPolicy(model="m", lr=1e-3),
    "lora": LoraPolicy(model="m", lr=1e-3, rank=4),
}
VOCABULARY = 200


def reply_to(prompt: np.ndarray, length: int, rng: np.random.Generator) -> Item:
    """A random reply with all that a loss may read."""
    response = rng.integers(5, VOCABULARY, length).astype(np.int32)
    return with_credit(prompt.astype(np.int32), response, rng)


def with_credit(prompt: np.ndarray, response: np.ndarray, rng: np.random.Generator) -> Item:
    count = len(response)
    return Item(
        prompt,
        response,
        rng.normal(-5, 0.3, count).astype(np.float32),
        float(rng.normal()),
        advantages=rng.normal(size=count).astype(np.float32) if rng.integers(2) else None,
        values=rng.normal(size=count + 1).astype(np.float32),
        targets=rng.normal(size=count + 1).astype(np.float32),
        reference=rng.normal(-5, 0.3, count).astype(np.float32),
    )


def tokens(count: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(5, VOCABULARY, count).astype(np.int32)


def siblings(
    num_prompts: int = 3, replies: int = 4, prompt: int = 25, reply: int = 6
) -> list[Item]:
    """Several replies to each prompt."""
    rng = np.random.default_rng(0)
    prompts = [tokens(prompt + at, rng) for at in range(num_prompts)]
    return [reply_to(one, max(1, reply - at % 3), rng) for one in prompts for at in range(replies)]


def dialogue(num_turns: int = 10, length: int = 120, share: float = 0.5) -> list[Item]:
    """Turns whose prompts contain the turns before them."""
    rng = np.random.default_rng(1)
    text, part = tokens(length, rng), length // num_turns
    own = int(share * part)
    ends = [part * (at + 1) for at in range(num_turns)]
    return [with_credit(text[: end - own], text[end - own : end], rng) for end in ends]


def decisions(
    num_decisions: int = 5, num_siblings: int = 4, prompt: int = 20, reply: int = 5
) -> list[Item]:
    """A tree rollout: siblings at each decision, of which one continues."""
    rng = np.random.default_rng(2)
    path, items = tokens(prompt, rng), []
    for _ in range(num_decisions):
        items += [reply_to(path, reply, rng) for _ in range(num_siblings)]
        path = np.concatenate([path, items[-1].response_ids, tokens(prompt // 2, rng)])
    return items


def mixed() -> list[Item]:
    """All of these, equal replies, and unrelated prompts, in any order."""
    rng = np.random.default_rng(3)
    items = [*siblings(2, 3), *dialogue(4, 40), *decisions(2, 3)]
    items += [replace(items[0], advantage=0.5), reply_to(tokens(1, rng), 1, rng)]
    return [items[at] for at in rng.permutation(len(items))]


CASES = {"siblings": siblings, "dialogue": dialogue, "decisions": decisions, "mixed": mixed}


def pairs(items: Sequence[Item]) -> list[Pair]:
    return [Pair(one, other) for one, other in zip(items[::2], items[1::2], strict=False)]


def learner_of(
    model: Path, kind: str, loss: str = "clip", max_tokens: int = 4096, dtype: str = "float32"
) -> Learner:
    options: dict[str, Any] = {} if loss in ("plain", "dpo") else {"kl_coef": 0.1}
    if loss != "dpo":
        options["entropy_coef"] = 0.1
    spec = LearnerSpec(
        model,
        {"p": POLICIES[kind]},
        LearnerConfig(max_batch_tokens=max_tokens, dtype=dtype),
        loss_config(loss, **options),
        8,
        3,
        critic=CriticConfig() if loss == "clip" else None,
    )
    learner = Learner(spec)
    torch.manual_seed(5)
    for name, parameter in learner._model.named_parameters():
        if "lora_B" in name or name.startswith("heads."):  # they are initialized to zero
            set_tensor(parameter, 0.05 * torch.randn(parameter.shape))
    return learner


def read_padded(learner: Learner) -> None:
    """Let a learner read padded rows."""
    learner._micro_batches = replace(learner._micro_batches, use_trees=False)


def gradients(learner: Learner, units: Sequence[Any]) -> tuple[dict[str, torch.Tensor], float]:
    """The gradients of a minibatch, and its loss."""
    learner._activate("p")
    learner._model.zero_grad(set_to_none=True)
    loss, _ = learner._accumulate("p", units, None, learner._spec.loss)
    named = {**learner._parameters("p"), **learner._head("p")}
    return {n: whole(p.grad).clone() for n, p in named.items() if p.grad is not None}, loss


def relative_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    ours, theirs = (torch.cat([found[n].flatten() for n in one]) for found in (one, other))
    return float((ours - theirs).norm() / theirs.norm())
