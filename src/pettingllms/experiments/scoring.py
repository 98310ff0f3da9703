"""Score an evaluation's episodes: one number, with its cost and per-task values."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RunConfig
from pettingllms.errors import ExperimentError, nearest
from pettingllms.evaluation.suites.scoring import by_task, score_episode, vote_curve
from pettingllms.types import Episode, Scored

Measure = Literal["success", "majority", "loss", "reward", "metric", "nash_conv", "regret"]
EXPLOITABILITY_METRICS = ("nash_conv", "regret")
Exploitability = Mapping[str, Mapping[str, float]]
"""By policy: exploitability by the name of the measure."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One evaluation of one arm and seed."""

    value: float
    num_tasks: int
    num_episodes: int
    num_failed: int
    """Failed episodes. They count against the role, or have no reward."""
    tokens: float
    """Mean tokens per episode, sampled by all models; of a majority: per vote of all episodes."""
    tasks: str = ""
    """Digest of the task ids, in order. Empty: no per-task values."""
    values: list[float | None] = field(default_factory=list)
    """Per task: the mean over its episodes; None if none has a value."""


def measure(
    episodes: Sequence[Episode],
    exploitability: Exploitability,
    config: RunConfig,
    role: str,
    what: Measure,
    metric: str = "",
) -> Measured:
    """Score an evaluation; `metric` names an environment metric."""
    models = {name for name, policy in config.policies.items() if policy.kind != "scripted"}
    tokens = [
        sum(turn.num_tokens for turn in episode.turns if turn.policy in models)
        for episode in episodes
    ]
    found = Measured(
        value=0.0,
        num_tasks=len({episode.task.id for episode in episodes}),
        num_episodes=len(episodes),
        num_failed=sum(not _is_complete(episode) for episode in episodes),
        tokens=mean(tokens),
    )
    if what in EXPLOITABILITY_METRICS:
        return replace(found, value=_exploitability(exploitability, config, role, what))
    if what == "majority":
        return _majority(episodes, role, found)
    scores = _metric(episodes, metric) if what == "metric" else _score(episodes, config, role, what)
    of_task: dict[str, list[float]] = {episode.task.id: [] for episode in episodes}
    for episode, value in zip(episodes, scores, strict=True):
        if value is not None:
            of_task[episode.task.id].append(value)
    return replace(
        found,
        value=mean([value for value in scores if value is not None]),
        tasks=_digest(of_task),
        values=[mean(some) if some else None for some in of_task.values()],
    )


def _majority(episodes: Sequence[Episode], role: str, found: Measured) -> Measured:
    """Per task: whether the majority answer of its episodes is correct; a tie counts in parts."""
    tasks = by_task([score_episode(episode, role, [role], False) for episode in episodes])
    values = [vote_curve(scores, [len(scores)])[len(scores)] for scores in tasks.values()]
    num_votes = len(episodes) / max(1, len(tasks))
    return replace(
        found,
        value=mean(values),
        tokens=found.tokens * num_votes,
        tasks=_digest(tasks),
        values=list(values),
    )


def _digest(tasks: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(tasks).encode()).hexdigest()[:16]


def _exploitability(
    exploitability: Exploitability, config: RunConfig, role: str, what: str
) -> float:
    found = exploitability[config.roles[role]]
    if what not in found:
        raise ExperimentError(
            f"'{config.env.id}' does not support {what}; use one of {', '.join(sorted(found))}"
        )
    return found[what]


def _metric(episodes: Sequence[Episode], name: str) -> list[float | None]:
    """Per episode: the last value of the metric."""
    steps = [[episode.steps[at].metrics for at in episode.main_branch()] for episode in episodes]
    reported = [[one[name] for one in metrics if name in one] for metrics in steps]
    if not any(reported):
        known = sorted({key for metrics in steps for one in metrics for key in one})
        raise ExperimentError(f"no episode reported '{name}'; {nearest(name, known)}")
    return [values[-1] if values else None for values in reported]


def _is_complete(episode: Episode) -> bool:
    return episode.failure is None and bool(episode.success)


def _score(
    episodes: Sequence[Episode], config: RunConfig, role: str, what: Measure
) -> list[float | None]:
    """Per episode: the role's reward, success or loss."""
    if what == "reward":
        return _rewards(episodes, config, role)
    count = _is_lost if what == "loss" else _is_success
    return [float(count(episode, role)) for episode in episodes]


def _is_success(episode: Episode, role: str) -> bool:
    return _is_complete(episode) and bool(episode.success[role])


def _is_lost(episode: Episode, role: str) -> bool:
    others = (success for other, success in episode.success.items() if other != role)
    return not _is_complete(episode) or (not episode.success[role] and any(others))


def _rewards(episodes: Sequence[Episode], config: RunConfig, role: str) -> list[float | None]:
    rewards = [role_reward(episode, role, config.reward) for episode in episodes]
    if not any(isinstance(reward, Scored) for reward in rewards):
        raise ExperimentError(
            f"'{role}' has no reward in any of {len(episodes)} episodes; check the failures in the "
            "episodes, then run the same command again"
        )
    return [reward.value if isinstance(reward, Scored) else None for reward in rewards]
