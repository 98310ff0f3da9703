"""What an evaluation's episodes came to: one number, and what it took to get it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RunConfig
from pettingllms.errors import ExperimentError, nearest
from pettingllms.types import Episode, Scored

Measure = Literal["success", "loss", "reward", "metric", "nash_conv", "regret"]
DISTANCES = ("nash_conv", "regret")
Distances = Mapping[str, Mapping[str, float]]
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


def measure(
    episodes: Sequence[Episode],
    distances: Distances,
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
    return Measured(
        value=_metric(episodes, metric)
        if what == "metric"
        else _value(episodes, distances, config, role, what),
        num_tasks=len({episode.task.id for episode in episodes}),
        num_plays=len(episodes),
        num_failed=sum(not _ended(episode) for episode in episodes),
        tokens=mean(tokens),
    )


def _value(
    episodes: Sequence[Episode], distances: Distances, config: RunConfig, role: str, what: Measure
) -> float:
    if what in DISTANCES:
        found = distances[config.roles[role]]
        if what not in found:
            raise ExperimentError(
                f"'{config.env.id}' has no {what}; measure one of {', '.join(sorted(found))}"
            )
        return found[what]
    return _reward(episodes, config, role) if what == "reward" else _share(episodes, role, what)


def _metric(episodes: Sequence[Episode], name: str) -> float:
    """The mean over plays of what each reported last under this name."""
    steps = [[episode.steps[at].metrics for at in episode.trunk()] for episode in episodes]
    reported = [[one[name] for one in play if name in one] for play in steps]
    found = [values[-1] for values in reported if values]
    if not found:
        known = sorted({key for play in steps for one in play for key in one})
        raise ExperimentError(f"no play reported '{name}'; {nearest(name, known)}")
    return mean(found)


def _ended(episode: Episode) -> bool:
    return episode.failure is None and bool(episode.success)


def _share(episodes: Sequence[Episode], role: str, what: Measure) -> float:
    count = _is_lost if what == "loss" else _is_reached
    return mean([count(episode, role) for episode in episodes])


def _is_reached(episode: Episode, role: str) -> bool:
    return _ended(episode) and bool(episode.success[role])


def _is_lost(episode: Episode, role: str) -> bool:
    others = (reached for other, reached in episode.success.items() if other != role)
    return not _ended(episode) or (not episode.success[role] and any(others))


def _reward(episodes: Sequence[Episode], config: RunConfig, role: str) -> float:
    rewards = [role_reward(episode, role, config.reward) for episode in episodes]
    paid = [reward.value for reward in rewards if isinstance(reward, Scored)]
    if not paid:
        raise ExperimentError(
            f"'{role}' was paid in none of {len(episodes)} plays, so there is no mean; look at "
            "the failures in the episodes, then run the same command again"
        )
    return mean(paid)
