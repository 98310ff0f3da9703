"""Credit assignment: algorithms that turn the rewards of episodes into advantages of turns."""

from typing import Any

from pettingllms.algos.base import Algorithm, reward_list, task_key
from pettingllms.algos.credit import centered, leave_one_out, role_reward, standardized
from pettingllms.config import RunConfig
from pettingllms.registry import ALGORITHMS

__all__ = [
    "Algorithm",
    "centered",
    "leave_one_out",
    "make_algorithm",
    "make_algorithm_for",
    "reward_list",
    "role_reward",
    "standardized",
    "task_key",
]


def make_algorithm(type: str, **options: Any) -> Algorithm:  # noqa: A002
    """The algorithm of that name, with options as in the [algo] section of a configuration."""
    cls = ALGORITHMS.load(type)
    algorithm: Algorithm = cls(cls.Config.model_validate({"type": type, **options}))
    return algorithm


def make_algorithm_for(config: RunConfig, type: str | None = None) -> Algorithm:  # noqa: A002
    """The algorithm of a run, or another one with the same reward mix and trained policies."""
    cls = ALGORITHMS.load(type or config.algo.type)
    options = cls.Config(type=type) if type else config.algo
    algorithm: Algorithm = cls(options, config.reward, config.trained_policies())
    return algorithm
