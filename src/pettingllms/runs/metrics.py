"""Metrics of a batch of episodes, by role and by policy, as plain floats.

A metric without measurements is left out, never 0.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NotRequired, TypedDict

from pettingllms.algos.credit import mean, role_levels
from pettingllms.config import RunConfig
from pettingllms.runs.proposals import proposal_metrics
from pettingllms.runs.summary import Summary
from pettingllms.sandbox.blocked_calls import METRIC, is_probing
from pettingllms.types import Episode, Scored, Turn

LEVELS = ("process", "agent", "team")


class Metrics(TypedDict):
    """Metrics of one step. The loop adds those of learners and the durations."""

    roles: dict[str, dict[str, float]]
    policies: dict[str, dict[str, float]]
    """Policies that learn."""
    rollout: dict[str, float]
    curriculum: NotRequired[dict[str, float]]
    """The level of the step, and the success that changes it."""
    league: NotRequired[dict[str, float]]
    """The learner's rating, and its score against snapshots and each other opponent."""
    judge: NotRequired[dict[str, float]]
    """Verdicts, failures, and the difference from the held-out judge."""
    proposals: NotRequired[dict[str, float]]
    """Validity, novelty and solve rate of the tasks that a role proposed."""
    co_players: NotRequired[dict[str, float]]
    """The phase, the learners' reward, and the effect of the last switch on it."""
    critics: NotRequired[dict[str, dict[str, float]]]
    """Critics that are separate models; a value head is measured with its policy."""
    time: NotRequired[dict[str, float]]
    """Seconds of each phase, and of the whole step under `step`."""


def episode_metrics(episodes: Sequence[Episode], config: RunConfig, summary: Summary) -> Metrics:
    """Metrics of episodes that have advantages, and of their summary."""
    turns = [turn for episode in episodes for turn in episode.turns]
    trained = config.trained_policies()
    found: Metrics = {
        "roles": {
            role: _role_rewards(episodes, role, summary)
            | _role_turns([turn for turn in turns if turn.role == role], role, summary)
            | _role_blocked_calls(role, summary)
            for role in config.roles
        },
        "policies": {
            name: _policy([turn for turn in turns if turn.policy == name])
            for name in config.policies
            if name in trained
        },
        "rollout": {
            "num_episodes": float(summary.num_episodes),
            "failed_episodes": float(summary.num_failed_episodes),
            "cut_episodes": float(summary.num_cut_episodes),
            "tokens": float(summary.num_tokens),
            "extra_tokens": float(summary.num_extra_tokens),
            "uncompared_decisions": float(summary.num_uncompared),
        },
    }
    if proposals := proposal_metrics(episodes):
        found["proposals"] = proposals
    return found


def flatten(metrics: Mapping[str, object]) -> dict[str, float]:
    """Nested metrics under keys such as "roles/planner/reward", for trackers."""
    flat: dict[str, float] = {}
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}/{rest}": number for rest, number in flatten(value).items()}
        elif isinstance(value, int | float):
            flat[key] = float(value)
        else:
            raise TypeError(f"metric {key!r} is {value!r}; give a number, or a mapping of numbers")
    return flat


def _role_rewards(episodes: Sequence[Episode], role: str, summary: Summary) -> dict[str, float]:
    found = _mean("reward", summary.rewards[role])
    levels = [role_levels(episode, role) for episode in episodes if episode.failure is None]
    for level, rewards in zip(LEVELS, zip(*levels, strict=True), strict=False):
        found |= _mean(f"reward_{level}", [r.value for r in rewards if isinstance(r, Scored)])
    if summary.num_best:
        found["best_of_k_success"] = summary.best_successes[role] / summary.num_best
    return found | _mean("success", summary.successes[role])


def _role_turns(turns: Sequence[Turn], role: str, summary: Summary) -> dict[str, float]:
    found = {"num_turns": float(len(turns))}
    if turns:
        found["failed_share"] = summary.failed_turns[role] / len(turns)
    written = [turn for turn in turns if turn.policy_version is not None]
    found |= _mean("reply_tokens", [turn.num_tokens for turn in written])
    found |= _mean("limit_share", [bool(turn.limit) for turn in written])
    return found | _mean("cut_share", [turn.finish == "length" for turn in written])


def _role_blocked_calls(role: str, summary: Summary) -> dict[str, float]:
    """Blocked system calls of a role's programs, if it has any."""
    blocked = summary.blocked_calls.get(role)
    if blocked is None:
        return {}
    probing = sum(count for name, count in blocked.items() if is_probing(name))
    return {METRIC: float(blocked.total()), "probing_calls": float(probing)}


def _policy(turns: Sequence[Turn]) -> dict[str, float]:
    trained = [turn for turn in turns if turn.credit.advantage is not None]
    advantages = [turn.credit.advantage for turn in trained if turn.credit.advantage is not None]
    found = {
        "trained_turns": float(len(trained)),
        "trained_tokens": float(sum(turn.num_tokens for turn in trained)),
    }
    found |= _mean("mean_abs_advantage", [abs(advantage) for advantage in advantages])
    found |= _mean("zero_share", [advantage == 0 for advantage in advantages])
    return found | _entropy(turns) | diversity(turns)


def _entropy(turns: Sequence[Turn]) -> dict[str, float]:
    """Mean of -log p over all sampled tokens: an unbiased estimate of the entropy."""
    scored = [turn for turn in turns if turn.has_logprobs]
    num_tokens = sum(turn.num_tokens for turn in scored)
    if not num_tokens:
        return {}
    total = math.fsum(turn.total_logprob() for turn in scored)
    return {"sampler_entropy": -total / num_tokens}


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    return {name: mean(values)} if values else {}


def diversity(turns: Iterable[Turn]) -> dict[str, float]:
    """Diversity metrics of the turns of one policy; empty if it sampled none."""
    written = [turn for turn in turns if turn.policy_version is not None]
    if not written:
        return {}
    shares, num_prompts = reply_shares(written)
    return {
        "distinct_prompts": float(num_prompts),
        "distinct_replies": math.exp(-math.fsum(p * math.log(p) for p in shares.values())),
        "repetition": mean([turn.repetition() for turn in written]),
    }


def reply_shares(turns: Sequence[Turn]) -> tuple[dict[Hashable, float], int]:
    """The share of each reply, by `Turn.reply_key`, with equal weight per distinct prompt; and the
    number of prompts."""
    replies: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for turn in turns:
        replies[turn.prompt_key()][turn.reply_key()] += 1
    shares: dict[Hashable, float] = defaultdict(float)
    for of_prompt in replies.values():
        for reply, count in of_prompt.items():
            shares[reply] += count / of_prompt.total() / len(replies)
    return shares, len(replies)
