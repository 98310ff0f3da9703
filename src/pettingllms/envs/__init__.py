"""Environments: the contract, its test, and those that ship."""

from typing import Any

from pettingllms.envs.base import Environment, Player, Split, StepResult
from pettingllms.envs.check import check_env, find_faults
from pettingllms.registry import ENVIRONMENTS

__all__ = [
    "Environment",
    "Player",
    "Split",
    "StepResult",
    "check_env",
    "find_faults",
    "make_env",
]


def make_env(id: str, **options: Any) -> Environment[Any, Any]:  # noqa: A002
    """The environment of that name, with options as in the [env] section of a configuration."""
    cls = ENVIRONMENTS.load(id)
    config = cls.Config.model_validate({"id": id, **options})
    env: Environment[Any, Any] = cls.create(config)
    return env
