"""Algorithms: which turns are compared with each other, and the advantages that follow."""

from typing import Any

from pettingllms.algos.base import Algorithm
from pettingllms.config import RunConfig
from pettingllms.registry import ALGORITHMS

__all__ = ["Algorithm", "make_algorithm", "make_algorithm_for"]


def make_algorithm(type: str, **options: Any) -> Algorithm:  # noqa: A002
    """The algorithm of that name, with options as in the [algo] section of a configuration."""
    cls = ALGORITHMS.load(type)
    algorithm: Algorithm = cls(cls.Config.model_validate({"type": type, **options}))
    return algorithm


def make_algorithm_for(config: RunConfig) -> Algorithm:
    """The algorithm of a run, with its mix of rewards and the policies that learn."""
    cls = ALGORITHMS.load(config.algo.type)
    algorithm: Algorithm = cls(config.algo, config.reward, config.trained_policies())
    return algorithm
