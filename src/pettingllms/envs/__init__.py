"""Environments: the contract, `check_env`, and the environments that ship."""

from typing import Any

from pettingllms.config import EnvConfig, RunConfig
from pettingllms.envs.base import Environment, ScriptedPlayer, Split, StepResult
from pettingllms.envs.contract import check_env, find_faults
from pettingllms.envs.toolkit.process import command
from pettingllms.envs.workflow import Agents, RoleRule, Workflow, WorkflowConfig
from pettingllms.registry import ENVIRONMENTS

__all__ = [
    "Agents",
    "Environment",
    "RoleRule",
    "ScriptedPlayer",
    "Split",
    "StepResult",
    "Workflow",
    "WorkflowConfig",
    "check_env",
    "command",
    "find_faults",
    "make_env",
    "make_env_at",
    "make_env_for",
    "make_test_env",
]


def make_env(id: str, **options: Any) -> Environment[Any, Any]:  # noqa: A002
    """Create an environment by id. Options are those of the [env] section of a config."""
    return make_env_for(ENVIRONMENTS.load(id).Config.model_validate({"id": id, **options}))


def make_env_for(config: EnvConfig) -> Environment[Any, Any]:
    """Create the environment for the [env] section of a config."""
    env: Environment[Any, Any] = ENVIRONMENTS.load(config.id).create(config)
    return env


def make_test_env(config: RunConfig) -> Environment[Any, Any]:
    """Create the environment for evaluating a run. It does not change with the curriculum."""
    if config.curriculum is None:
        return make_env_for(config.env)
    return make_env_at(config, config.eval.level or len(config.curriculum.levels))


def make_env_at(config: RunConfig, level: int) -> Environment[Any, Any]:
    """Create the environment of a run at a curriculum level, counted from 1.

    The level is part of its id, because task ids name other problems at other levels.
    """
    env = make_env_for(config.env_at(level))
    if config.curriculum is not None:
        env.id = f"{env.id}[{config.curriculum.key}={config.curriculum.levels[level - 1]}]"
    return env
