"""An environment as a server offers it: its tasks, its description, and guarded calls into it."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from pettingllms.envs.base import Environment
from pettingllms.envs.openenv.fields import clean
from pettingllms.envs.openenv.wire import ServerInfo
from pettingllms.envs.workflow import Workflow
from pettingllms.errors import ConfigError, PettingError, describe
from pettingllms.types import Task

ResultT = TypeVar("ResultT")


class Served:
    """An environment that many sessions play at the same time."""

    def __init__(self, env: Environment[Any, Any]) -> None:
        if isinstance(env, Workflow):
            what = (
                f"'{env.id}' is a workflow: a program that runs itself; it has no states to serve. "
                "Serve an environment with reset and step"
            )
            raise ConfigError("serve-env", [what])
        self.env = env
        self.tasks: dict[str, Sequence[Task]] = {
            "train": env.tasks("train"),
            "test": env.tasks("test"),
        }
        own = env.config.limit_reward
        self.info = ServerInfo(
            env=env.id,
            roles=tuple(env.roles),
            image_roles=tuple(env.image_roles),
            players=tuple(env.players),
            num_tasks={split: len(tasks) for split, tasks in self.tasks.items()},
            late_rewards=env.late_rewards,
            limit_reward=env.limit_reward if own is None else own,
            limit_level=env.limit_level,
            can_fork=env.can_fork,
            judged=env.judged,
            submits=env.submits,
            rule_parts=tuple(env.rule_parts),
            runs_programs=env.runs_programs,
        )
        self._lock = threading.Lock()

    def call(self, what: str, function: Callable[..., ResultT], *args: Any) -> ResultT:
        """A call into the environment. Environments that do not wait for anything are called one
        at a time, as in a rollout."""
        guard: AbstractContextManager[Any] = nullcontext() if self.env.blocking else self._lock
        try:
            with guard:
                return function(*args)
        except Exception as error:
            raise PettingError(
                f"{what} of '{self.env.id}' raised {clean(describe(error))[:400]}; the episode is "
                "where it was, so another reply or a reset may work"
            ) from error
