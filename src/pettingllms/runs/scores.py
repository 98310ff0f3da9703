"""Success rates of roles: avg@k and pass@k over tasks, with confidence intervals.

Episodes of one task are correlated, so intervals come from resampling tasks. Episodes that failed
or are missing stay in the denominator and count as no success.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RewardConfig
from pettingllms.types import Episode, Scored

NUM_RESAMPLES = 10_000
SEED = 0
Z = 1.959963984540054
"""Half the width of a 95% interval, in standard deviations."""
FEW = 5
"""With fewer tasks that differ from the most common outcome, resampling underestimates variance."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, with its 95% confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RoleScore:
    """The scores of one role in an evaluation."""

    avg: Estimate
    """Share of episodes with success."""
    pass_at: dict[int, Estimate]
    """By k: share of tasks solved by at least one of k episodes, averaged over all choices of k."""
    num_tasks: int
    num_failed: int
    """Episodes without an outcome, failed or missing. They count as no success."""
    reward: float | None = None
    """Mean reward over scored episodes; None if not requested, or if there is none."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON; each k becomes a string."""
        passes = {str(k): asdict(estimate) for k, estimate in self.pass_at.items()}
        return asdict(self) | {"pass_at": passes}


def score(
    episodes: Sequence[Episode],
    task_ids: Sequence[str],
    num_samples: int,
    roles: Sequence[str],
    reward: RewardConfig | None = None,
) -> dict[str, RoleScore]:
    """Score every role over `num_samples` episodes per task; missing episodes count as failed."""
    by_task = _by_task(episodes, task_ids, num_samples)
    return {role: _role_score(role, by_task, num_samples, reward) for role in roles}


def pass_values(num_samples: int) -> dict[int, Floats]:
    """By k, then by the number of successes: the probability that k episodes include a success.

    The unbiased estimator of Chen et al. (2021): 1 - C(n - c, k) / C(n, k).
    """
    ks = sorted({2**i for i in range(num_samples.bit_length())} | {num_samples})
    whole = {k: math.comb(num_samples, k) for k in ks}
    return {
        k: np.array([(n - math.comb(num_samples - c, k)) / n for c in range(num_samples + 1)])
        for k, n in whole.items()
    }


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one number from 0 to 1 per task, with its confidence interval."""
    seen, histogram = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    drawn = np.random.default_rng(SEED).multinomial(
        len(values), histogram / len(values), size=NUM_RESAMPLES
    )
    return _estimate(histogram, seen, drawn)


def resampled(values: Sequence[float]) -> Estimate:
    """The mean of one number per task, of any size, with an interval from resampled tasks."""
    seen, histogram = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    num = len(values)
    drawn = np.random.default_rng(SEED).multinomial(num, histogram / num, size=NUM_RESAMPLES)
    middle = float(histogram @ seen) / num
    low, high = np.quantile(drawn @ seen / num, (0.025, 0.975))
    return Estimate(middle, min(middle, float(low)), max(middle, float(high)))


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Mean of `first` minus mean of `second`, with one number from 0 to 1 per task in each, in the
    same order. If few tasks differ, resampling is too narrow, and Newcombe's interval is used."""
    gained = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if num_outside_mode(gained) < FEW:
        return newcombe(float(gained.mean()), estimate(first), estimate(second))
    return resampled(gained.tolist())


def num_outside_mode(values: Floats) -> int:
    """How many values differ from the most frequent one."""
    _, counts = np.unique(values, return_counts=True)
    return len(values) - int(counts.max())


def newcombe(middle: float, first: Estimate, second: Estimate) -> Estimate:
    """A difference of two shares with Newcombe's interval (1998)."""
    low = math.hypot(first.value - first.low, second.high - second.value)
    high = math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(middle, max(-1.0, middle - low), min(1.0, middle + high))


def _by_task(
    episodes: Sequence[Episode], task_ids: Sequence[str], num_samples: int
) -> dict[str, list[Episode]]:
    by_task: dict[str, list[Episode]] = {task: [] for task in task_ids}
    if not by_task or num_samples < 1:
        raise ValueError(f"{len(by_task)} tasks, {num_samples} episodes each: nothing to score")
    if len(by_task) < len(task_ids):
        raise ValueError("task_ids names a task twice; name each once")
    for episode in episodes:
        of_task = by_task.get(episode.task.id)
        if of_task is None:
            raise ValueError(f"episode '{episode.id}' is of no task in task_ids")
        if any(episode.id == other.id for other in of_task):
            raise ValueError(f"episode '{episode.id}' occurs twice; give each episode once")
        of_task.append(episode)
        if len(of_task) > num_samples:
            raise ValueError(
                f"task '{episode.task.id}' has more than num_samples = {num_samples} episodes; "
                "give those of one evaluation"
            )
    return by_task


def _role_score(
    role: str, by_task: Mapping[str, Sequence[Episode]], num_samples: int, mix: RewardConfig | None
) -> RoleScore:
    """Tasks with equally many successes are interchangeable, so their histogram is sufficient."""
    successes = [[_succeeded(episode, role) for episode in of_task] for of_task in by_task.values()]
    num_known = sum(outcome is not None for of_task in successes for outcome in of_task)
    counts = [sum(map(bool, of_task)) for of_task in successes]
    histogram = np.bincount(counts, minlength=num_samples + 1)
    drawn = np.random.default_rng(SEED).multinomial(
        len(by_task), histogram / len(by_task), size=NUM_RESAMPLES
    )
    pass_at = {k: _estimate(histogram, v, drawn) for k, v in pass_values(num_samples).items()}
    return RoleScore(
        avg=pass_at[1],
        pass_at=pass_at,
        num_tasks=len(by_task),
        num_failed=len(by_task) * num_samples - num_known,
        reward=None if mix is None else _mean_reward(role, by_task, mix),
    )


def _succeeded(episode: Episode, role: str) -> bool | None:
    """Whether the role succeeded; None if the episode has no outcome."""
    if episode.best_of > 1:
        raise ValueError(
            f"episode '{episode.id}' is the best of {episode.best_of} siblings, which is not "
            "the policy's success; give episodes of linear rollouts"
        )
    if episode.failure is not None or not episode.success:
        return None
    if role not in episode.success:
        raise ValueError(
            f"role '{role}' has no outcome in episode '{episode.id}', which has those of "
            f"{', '.join(episode.success)}"
        )
    return bool(episode.success[role])


def _mean_reward(
    role: str, by_task: Mapping[str, Sequence[Episode]], mix: RewardConfig
) -> float | None:
    rewards = (
        role_reward(episode, role, mix) for of_task in by_task.values() for episode in of_task
    )
    values = [reward.value for reward in rewards if isinstance(reward, Scored)]
    return mean(values) if values else None


def _estimate(
    histogram: npt.NDArray[np.int64], values: Floats, drawn: npt.NDArray[np.int64]
) -> Estimate:
    """The mean over tasks, with an interval from resampled tasks."""
    num_tasks = int(histogram.sum())
    share = float(histogram @ values) / num_tasks
    seen, where = np.unique(values, return_inverse=True)
    tasks = np.bincount(where, weights=histogram)
    plain = bool(np.isin(seen[tasks > 0], (0.0, 1.0)).all())
    if plain or num_tasks - tasks.max() < FEW:
        return Estimate(share, *wilson(share, num_tasks))
    low, high = np.quantile(drawn @ values / num_tasks, (0.025, 0.975))
    return Estimate(share, min(share, float(low)), max(share, float(high)))


def wilson(share: float, num: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share of `num`. It never has width 0. It is conservative for
    values between 0 and 1, whose variance is at most that of plain successes."""
    spread = Z**2 / num
    middle = share + spread / 2
    half = math.sqrt(spread * share * (1 - share) + spread**2 / 4)
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))
