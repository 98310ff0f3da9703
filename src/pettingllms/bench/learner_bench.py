"""Learning from token trees against padded rows, on batches that share prefixes.

Each variant is a learner with a separate model in this process. All make the same optimizer steps
in turn, because machine speed drifts. The measure is CPU-seconds, which other load on the machine
changes less than wall time.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.engines import Dtype
from pettingllms.config.policies import LoraPolicy
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import find_model
from pettingllms.types import Ids, Values

POLICY = "bench"
RANK = 16
MAX_TOKENS = 2048
"""Tokens of a pass: enough for the trees of each batch, and little memory for padded rows."""
VOCABULARY = 256
"""Tokens of the batches; their values do not change the time."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to learn from a batch."""

    name: str
    use_trees: bool
    dtype: Dtype


PADDED, TREES = Variant("padded rows", False, "float32"), Variant("token trees", True, "float32")
VARIANTS = (PADDED, TREES, Variant("token trees, bfloat16", True, "bfloat16"))


@dataclass(frozen=True, slots=True)
class LearnerBench:
    """One variant on one batch."""

    case: str
    variant: str
    tokens_read: int
    """Tokens that the model computes, padding included."""
    distinct_tokens: int
    """Distinct prefixes of the batch."""
    cpu_seconds: float
    """Of one optimizer step, the median over rounds."""
    speedup: float
    """CPU-seconds of padded rows over these, as the median of the rounds' ratios."""
    cosine: float
    """Of the gradient with that of padded rows in float32."""


def bench_learner(
    model: str, repeats: int = 3, phase: Callable[[str], None] = lambda _: None
) -> list[LearnerBench]:
    """Train a LoRA adapter on each batch with each variant in turn. `phase` gets a description of
    each round."""
    folder = find_model(model)
    learners = {}
    for variant in VARIANTS:
        phase(f"loading the model for {variant.name}")
        learners[variant] = Learner(_spec(folder, variant))
        learners[variant].use_trees(variant.use_trees)
    found = []
    for case, items in batches().items():
        gradients = {v: _gradient(learner, items) for v, learner in learners.items()}
        seconds: dict[Variant, list[float]] = {variant: [] for variant in VARIANTS}
        for number in range(1, repeats + 1):
            phase(f"{case}: round {number} of {repeats}")
            for variant, learner in learners.items():
                start = time.process_time()
                learner.train(POLICY, items, number)
                seconds[variant].append(time.process_time() - start)
        for variant, own in seconds.items():
            ratios = [base / mine for base, mine in zip(seconds[PADDED], own, strict=True)]
            found.append(
                LearnerBench(
                    case,
                    variant.name,
                    learners[variant].num_computed(items),
                    num_distinct(items),
                    statistics.median(own),
                    statistics.median(ratios),
                    _cosine(gradients[variant], gradients[PADDED]),
                )
            )
    return found


def _spec(folder: Path, variant: Variant) -> LearnerSpec:
    policies = {POLICY: LoraPolicy(model=str(folder), rank=RANK, lr=1e-6)}
    config = LearnerConfig(dtype=variant.dtype, max_batch_tokens=MAX_TOKENS)
    return LearnerSpec(folder, policies, config, loss_config(), 64, seed=0)


def _gradient(learner: Learner, items: Sequence[Item]) -> Values:
    """The gradient of an on-policy batch: its sampler log-probs are those of the learner."""
    own = learner.logprobs(POLICY, items)
    on_policy = [replace(item, logprobs=row) for item, row in zip(items, own, strict=True)]
    return learner.gradient(POLICY, on_policy)


def _cosine(one: Values, other: Values) -> float:
    ours, theirs = one.astype(np.float64), other.astype(np.float64)
    return float(ours @ theirs / (np.linalg.norm(ours) * np.linalg.norm(theirs)))


def batches() -> dict[str, list[Item]]:
    """Batches of the kinds that rollouts give."""
    rng = np.random.default_rng(0)
    return {
        "8 siblings, 400 + 64 tokens": _siblings(rng, _tokens(rng, 400), 8, 64),
        "10 turns, 1,000 tokens": _dialogue(rng, 10, 100),
        "5 decisions with 4 siblings": _decisions(rng, 5, 4, 40),
        "16 single turns, 60 + 68 tokens": [
            item for _ in range(16) for item in _siblings(rng, _tokens(rng, 60), 1, 68)
        ],
    }


def num_distinct(items: Sequence[Item]) -> int:
    """Distinct prefixes, counted one by one."""
    whole = [np.concatenate([item.prompt_ids, item.response_ids]) for item in items]
    return len({ids[: end + 1].tobytes() for ids in whole for end in range(len(ids))})


def _tokens(rng: np.random.Generator, count: int) -> Ids:
    return rng.integers(VOCABULARY, size=count).astype(np.int32)


def _item(rng: np.random.Generator, prompt: Ids, reply: Ids) -> Item:
    return Item(prompt, reply, np.full(len(reply), -5, np.float32), float(rng.normal()))


def _siblings(rng: np.random.Generator, prompt: Ids, count: int, length: int) -> list[Item]:
    return [_item(rng, prompt, _tokens(rng, length)) for _ in range(count)]


def _dialogue(rng: np.random.Generator, num_turns: int, length: int) -> list[Item]:
    """Turns whose prompts contain the turns before them; half of each is the reply."""
    text = _tokens(rng, num_turns * length)
    ends = range(length, len(text) + 1, length)
    return [_item(rng, text[: end - length // 2], text[end - length // 2 : end]) for end in ends]


def _decisions(rng: np.random.Generator, count: int, num_siblings: int, length: int) -> list[Item]:
    """A tree rollout: siblings at each decision, of which one continues."""
    path, items = _tokens(rng, 5 * length), []
    for _ in range(count):
        items += _siblings(rng, path, num_siblings, length)
        path = np.concatenate([path, items[-1].response_ids, _tokens(rng, length)])
    return items
