"""How often roles reached their aims: avg@k and pass@k over tasks, with what chance leaves open.

Plays of one task are alike, so tasks are what is counted: an interval comes from drawing tasks
again, and a play that failed or never was stays in the denominator as not reached.
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
"""With fewer tasks that differ from the commonest outcome, resampling sees too little of chance."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, with its 95% confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RoleScore:
    """How well one role did in an evaluation."""

    avg: Estimate
    """Share of all plays in which it reached its aim."""
    pass_at: dict[int, Estimate]
    """By k: share of tasks in which one of k plays reaches it, over all ways to pick k."""
    num_tasks: int
    num_failed: int
    """Plays without an outcome, failed or missing. They count as not reached."""
    reward: float | None = None
    """Mean of what it was paid, over the plays in which it was; None if not asked for or none."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; each k becomes a string."""
        passes = {str(k): asdict(estimate) for k, estimate in self.pass_at.items()}
        return asdict(self) | {"pass_at": passes}


def score(
    episodes: Sequence[Episode],
    task_ids: Sequence[str],
    num_samples: int,
    roles: Sequence[str],
    reward: RewardConfig | None = None,
) -> dict[str, RoleScore]:
    """Score every role over `num_samples` plays of each task, whether or not they came to be."""
    plays = _by_task(episodes, task_ids, num_samples)
    return {role: _role_score(role, plays, num_samples, reward) for role in roles}


def pass_values(num_samples: int) -> dict[int, Floats]:
    """By k, then by the number of plays that reached the aim: the chance that k of them hold one.

    The unbiased estimator of Chen et al. (2021): 1 - C(n - c, k) / C(n, k).
    """
    ks = sorted({2**i for i in range(num_samples.bit_length())} | {num_samples})
    whole = {k: math.comb(num_samples, k) for k in ks}
    return {
        k: np.array([(n - math.comb(num_samples - c, k)) / n for c in range(num_samples + 1)])
        for k, n in whole.items()
    }


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one number from 0 to 1 for each task, and how far chance may have moved it."""
    seen, histogram = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    drawn = np.random.default_rng(SEED).multinomial(
        len(values), histogram / len(values), size=NUM_RESAMPLES
    )
    return _estimate(histogram, seen, drawn)


def _by_task(
    episodes: Sequence[Episode], task_ids: Sequence[str], num_samples: int
) -> dict[str, list[Episode]]:
    plays: dict[str, list[Episode]] = {task: [] for task in task_ids}
    if not plays or num_samples < 1:
        raise ValueError(f"{len(plays)} tasks, {num_samples} plays each: nothing to score")
    if len(plays) < len(task_ids):
        raise ValueError("task_ids names a task twice; name each once")
    for episode in episodes:
        of_task = plays.get(episode.task.id)
        if of_task is None:
            raise ValueError(f"episode '{episode.id}' is of no task in task_ids")
        if any(episode.id == other.id for other in of_task):
            raise ValueError(f"episode '{episode.id}' is there twice; give each play once")
        of_task.append(episode)
        if len(of_task) > num_samples:
            raise ValueError(
                f"task '{episode.task.id}' has more than num_samples = {num_samples} episodes; "
                "give those of one evaluation"
            )
    return plays


def _role_score(
    role: str, plays: Mapping[str, Sequence[Episode]], num_samples: int, mix: RewardConfig | None
) -> RoleScore:
    """Tasks with as many successes are alike, so their histogram says all that there is to say."""
    reached = [[_reached(episode, role) for episode in of_task] for of_task in plays.values()]
    num_known = sum(outcome is not None for of_task in reached for outcome in of_task)
    counts = [sum(map(bool, of_task)) for of_task in reached]
    histogram = np.bincount(counts, minlength=num_samples + 1)
    drawn = np.random.default_rng(SEED).multinomial(
        len(plays), histogram / len(plays), size=NUM_RESAMPLES
    )
    pass_at = {k: _estimate(histogram, v, drawn) for k, v in pass_values(num_samples).items()}
    return RoleScore(
        avg=pass_at[1],
        pass_at=pass_at,
        num_tasks=len(plays),
        num_failed=len(plays) * num_samples - num_known,
        reward=None if mix is None else _mean_reward(role, plays, mix),
    )


def _reached(episode: Episode, role: str) -> bool | None:
    """Whether the role reached its aim; None if the play has no outcome."""
    if episode.best_of > 1:
        raise ValueError(
            f"episode '{episode.id}' is the best of {episode.best_of} siblings, which does not "
            "tell the policy's success; give episodes of linear rollouts"
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
    role: str, plays: Mapping[str, Sequence[Episode]], mix: RewardConfig
) -> float | None:
    rewards = (role_reward(episode, role, mix) for of_task in plays.values() for episode in of_task)
    paid = [reward.value for reward in rewards if isinstance(reward, Scored)]
    return mean(paid) if paid else None


def _estimate(
    histogram: npt.NDArray[np.int64], values: Floats, drawn: npt.NDArray[np.int64]
) -> Estimate:
    """The mean over tasks, and how far it moves when tasks are drawn again."""
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
    """Wilson's 95% interval of a share of `num`. It never has width 0, and values between 0 and 1
    scatter no more than the plain successes that it is made for."""
    spread = Z**2 / num
    middle = share + spread / 2
    half = math.sqrt(spread * share * (1 - share) + spread**2 / 4)
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))
