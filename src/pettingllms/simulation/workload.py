"""The work of a run: which requests the episodes of a group make, with the lengths of replies.

The workload of a task follows from the seed and the number of its group, never from time, so a
group that is sampled again has other replies and a repeated simulation the same.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from pettingllms.config import RunConfig
from pettingllms.errors import ConfigError
from pettingllms.seeds import derive_seed
from pettingllms.simulation.assumptions import Assumptions


@dataclass(slots=True, eq=False)
class Ask:
    """One request: sibling replies of a policy to one prompt."""

    policy: str
    prompt: int
    """Tokens of the prompt."""
    shared: int
    """Those at its beginning that all episodes of the group have in common."""
    replies: tuple[int, ...]
    """Tokens of each reply."""
    place: int = 0
    """Requests of a group with the same place share their prefix."""
    num_tokens: int = field(init=False, default=0)
    """Tokens of all replies."""
    num_cached: int = field(init=False, default=0)
    """Tokens of all replies with their prompts."""

    def __post_init__(self) -> None:
        self.num_tokens = sum(self.replies)
        self.num_cached = self.num_tokens + self.prompt * len(self.replies)


Decision = tuple[Ask, ...]
"""Requests that are made at the same time: one per acting role."""


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """The decisions of an episode, in order."""

    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Random episodes: every role acts in turn, and reads the reply before it."""

    policies: tuple[str, ...]
    """The policy of each decision, in order. Only those that engines serve."""
    num_episodes: int
    """Per group."""
    num_siblings: int
    """Replies per request of a policy that learns: in a tree."""
    learning: frozenset[str]
    prompts: tuple[tuple[float, float], ...]
    """Tokens of the prompt of each decision: a number, which episodes of the group share, and a
    share of the reply before."""
    max_reply: int
    max_length: int
    """Tokens of prompt and reply together."""
    median: float
    sigma: float
    task_share: float
    seed: int

    def group(self, number: int, attempt: int) -> list[EpisodePlan]:
        """The episodes of a group that starts for the `attempt`-th time."""
        rng = np.random.default_rng(derive_seed(self.seed, "group", number, attempt))
        own = np.random.default_rng(derive_seed(self.seed, "task", number)).standard_normal()
        shape = self.num_episodes, len(self.policies), self.num_siblings
        within = rng.standard_normal(shape) * math.sqrt(1 - self.task_share)
        spread = self.sigma * (within + own * math.sqrt(self.task_share))
        lengths = np.rint(self.median * np.exp(spread)).clip(1, self.max_reply)
        return [self._episode(rows) for rows in lengths.astype(int).tolist()]

    def _episode(self, lengths: list[list[int]]) -> EpisodePlan:
        """An episode with the lengths of the replies of each decision."""
        decisions: list[Decision] = []
        before = 0
        for place, (policy, siblings) in enumerate(zip(self.policies, lengths, strict=True)):
            base, carried = self.prompts[place]
            prompt = min(round(base + carried * before), self.max_length - 1)
            room = self.max_length - prompt
            count = self.num_siblings if policy in self.learning else 1
            replies = tuple(min(room, length) for length in siblings[:count])
            before = replies[0]
            shared = min(round(base), prompt)
            decisions.append((Ask(policy, prompt, shared, replies, place),))
        return EpisodePlan(tuple(decisions))


@dataclass(frozen=True, slots=True)
class Lengths:
    """Measured lengths of prompts and replies."""

    prompts: tuple[tuple[float, float], ...]
    """By decision, as in `Workload`."""
    median: float
    sigma: float
    task_share: float = 0.0


def make_workload(
    config: RunConfig, assumed: Assumptions, seed: int, measured: Lengths | None = None
) -> Workload:
    """The workload of a configuration, with measured or assumed lengths."""
    kinds = {name: policy.kind for name, policy in config.policies.items()}
    served = [name for name in config.roles.values() if kinds[name] not in ("api", "scripted")]
    if not served:
        raise ConfigError("roles", ["no role is played by a policy with an engine"])
    rollout = config.rollout
    turns = assumed.turns or (len(served) if measured is None else len(measured.prompts))
    first = min(assumed.prompt_tokens, config.inference.max_model_len - 1)
    lengths = measured or Lengths(
        tuple((first, 1.0 if at else 0.0) for at in range(turns)),
        assumed.reply_median or max(1.0, rollout.max_reply_tokens / 8),
        assumed.reply_sigma,
        min(1.0, assumed.reply_task_share),
    )
    return Workload(
        policies=tuple(served[at % len(served)] for at in range(turns)),
        num_episodes=rollout.num_episodes,
        num_siblings=rollout.num_samples if rollout.type == "tree" else 1,
        learning=config.trained_policies(),
        prompts=lengths.prompts,
        max_reply=rollout.max_reply_tokens,
        max_length=config.inference.max_model_len,
        median=lengths.median,
        sigma=lengths.sigma,
        task_share=lengths.task_share,
        seed=seed,
    )
