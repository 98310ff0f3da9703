"""Environments: the contract, its test, and those that ship."""

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
    """The environment of that name, with options as in the [env] section of a configuration."""
    return make_env_for(ENVIRONMENTS.load(id).Config.model_validate({"id": id, **options}))


def make_env_for(config: EnvConfig) -> Environment[Any, Any]:
    """The environment of a configuration's [env] section."""
    env: Environment[Any, Any] = ENVIRONMENTS.load(config.id).create(config)
    return env


def make_test_env(config: RunConfig) -> Environment[Any, Any]:
    """The environment that a run is evaluated on, the same in every step."""
    if not config.curriculum.key:
        return make_env_for(config.env)
    return make_env_at(config, config.eval.level or len(config.curriculum.levels))


def make_env_at(config: RunConfig, level: int) -> Environment[Any, Any]:
    """The environment of a run at a level of its curriculum, from 1, if it has one.

    Its id says which: at another level the tasks of the same names are other problems.
    """
    env = make_env_for(config.env_at(level))
    if config.curriculum.key:
        env.id = f"{env.id}[{config.curriculum.key}={config.curriculum.levels[level - 1]}]"
    return env
