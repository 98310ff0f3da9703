"""What an evaluation's episodes came to: one number, and what it took to get it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RunConfig
from pettingllms.errors import ExperimentError, nearest
from pettingllms.types import Episode, Scored

Measure = Literal["success", "loss", "reward", "metric", "nash_conv", "regret"]
EXPLOITABILITY_METRICS = ("nash_conv", "regret")
Exploitability = Mapping[str, Mapping[str, float]]
"""By policy: how far it is from perfect play, by the name of the measure."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One number of one arm and seed."""

    value: float
    num_tasks: int
    num_plays: int
    num_failed: int
    """Plays that did not come to an end. They count against the role, or were not paid."""
    tokens: float
    """Sampled for one play by all models that took part, on average: what an answer costs."""
    tasks: str = ""
    """Digest of the ids of its tasks, in order. Empty: there is no number for each task."""
    values: list[float | None] = field(default_factory=list)
    """For each task the mean over its plays; None if no play of it has a number."""


def measure(
    episodes: Sequence[Episode],
    exploitability: Exploitability,
    config: RunConfig,
    role: str,
    what: Measure,
    metric: str = "",
) -> Measured:
    """Sum an evaluation up; with `metric`, by the name of what the environment reported."""
    models = {name for name, policy in config.policies.items() if policy.kind != "scripted"}
    tokens = [
        sum(turn.num_tokens for turn in episode.turns if turn.policy in models)
        for episode in episodes
    ]
    found = Measured(
        value=0.0,
        num_tasks=len({episode.task.id for episode in episodes}),
        num_plays=len(episodes),
        num_failed=sum(not _ended(episode) for episode in episodes),
        tokens=mean(tokens),
    )
    if what in EXPLOITABILITY_METRICS:
        return replace(found, value=_distance(exploitability, config, role, what))
    plays = _metric(episodes, metric) if what == "metric" else _play(episodes, config, role, what)
    by_task: dict[str, list[float]] = {episode.task.id: [] for episode in episodes}
    for episode, value in zip(episodes, plays, strict=True):
        if value is not None:
            by_task[episode.task.id].append(value)
    return replace(
        found,
        value=mean([value for value in plays if value is not None]),
        tasks=hashlib.sha256("\n".join(by_task).encode()).hexdigest()[:16],
        values=[mean(some) if some else None for some in by_task.values()],
    )


def _distance(exploitability: Exploitability, config: RunConfig, role: str, what: str) -> float:
    found = exploitability[config.roles[role]]
    if what not in found:
        raise ExperimentError(
            f"'{config.env.id}' has no {what}; measure one of {', '.join(sorted(found))}"
        )
    return found[what]


def _metric(episodes: Sequence[Episode], name: str) -> list[float | None]:
    """For each play what it reported last under this name."""
    steps = [[episode.steps[at].metrics for at in episode.main_branch()] for episode in episodes]
    reported = [[one[name] for one in play if name in one] for play in steps]
    if not any(reported):
        known = sorted({key for play in steps for one in play for key in one})
        raise ExperimentError(f"no play reported '{name}'; {nearest(name, known)}")
    return [values[-1] if values else None for values in reported]


def _ended(episode: Episode) -> bool:
    return episode.failure is None and bool(episode.success)


def _play(
    episodes: Sequence[Episode], config: RunConfig, role: str, what: Measure
) -> list[float | None]:
    """For each play what it came to for the role."""
    if what == "reward":
        return _rewards(episodes, config, role)
    count = _is_lost if what == "loss" else _is_reached
    return [float(count(episode, role)) for episode in episodes]


def _is_reached(episode: Episode, role: str) -> bool:
    return _ended(episode) and bool(episode.success[role])


def _is_lost(episode: Episode, role: str) -> bool:
    others = (reached for other, reached in episode.success.items() if other != role)
    return not _ended(episode) or (not episode.success[role] and any(others))


def _rewards(episodes: Sequence[Episode], config: RunConfig, role: str) -> list[float | None]:
    rewards = [role_reward(episode, role, config.reward) for episode in episodes]
    if not any(isinstance(reward, Scored) for reward in rewards):
        raise ExperimentError(
            f"'{role}' was paid in none of {len(episodes)} plays, so there is no mean; look at "
            "the failures in the episodes, then run the same command again"
        )
    return [reward.value if isinstance(reward, Scored) else None for reward in rewards]
