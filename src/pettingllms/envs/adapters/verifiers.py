"""Adapter for verifiers (Prime Intellect): `verifiers:NAME` is an installed taskset.

An environment of verifiers is a program around its agents, so it is a workflow here: every agent is
a role, with the gateway as its endpoint. verifiers scores the episode. Its dependencies conflict
with ours, so it runs in another virtual environment and a separate process; see
`verifiers_child.py`.
"""

import asyncio
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pettingllms.envs.base import Split
from pettingllms.envs.workflow import Agents, Workflow, WorkflowConfig
from pettingllms.errors import LibraryError
from pettingllms.runtime.json_child import JsonChild
from pettingllms.types import Rewards, Scored, Task
from pettingllms.types.rewards import MAX_REWARD

VARIABLE = "PETTINGLLMS_VERIFIERS"
"""Environment variable with the folder of the virtual environment, or with its interpreter."""
CHILD = Path(__file__).with_name("verifiers_child.py")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
HELD_OUT = 10
"""Without test settings, one in this many tasks is held out for evaluation."""
FORBIDDEN = frozenset({"fn"})
"""Settings that name code by its path. Only installed tasksets are imported."""


ModelT = TypeVar("ModelT", bound=BaseModel)


class VerifiersConfig(WorkflowConfig):
    """Options of tasksets of verifiers."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """The [env] section of a verifiers config, without the id of the taskset: `id`, `taskset` with
    the options of the taskset, and a table per agent."""
    test_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the test tasks, merged over `settings`, such as `taskset.split = "test"`. Left
    out: one in ten tasks is held out."""
    num_tasks: int = Field(default=1024, ge=1)
    """Maximum number of tasks to load per split. Required to be finite for endless tasksets."""
    success_reward: float = 1.0
    """Reward from which on a role succeeded."""
    load_timeout: float = Field(default=300.0, gt=0)
    """Timeout for starting verifiers and loading the taskset, in seconds."""

    @field_validator("settings", "test_settings")
    @classmethod
    def _name_no_code(cls, value: dict[str, Any]) -> dict[str, Any]:
        if found := sorted(set(_keys(value)) & FORBIDDEN):
            raise ValueError(
                f"{', '.join(found)}: code cannot be named here; put it in the taskset's package"
            )
        return value


class _Loaded(BaseModel):
    """An entry of the answer to `open`."""

    model_config = ConfigDict(strict=True, extra="forbid")
    index: int = Field(ge=0)
    key: str = Field(min_length=1)
    name: str
    prompt: str


class Opened(BaseModel):
    """The answer to `open`."""

    model_config = ConfigDict(strict=True, extra="forbid")
    version: str
    roles: list[str] = Field(min_length=1)
    agents: list[str]
    tasks: dict[str, list[_Loaded]]


Finite = Field(ge=-MAX_REWARD, le=MAX_REWARD, allow_inf_nan=False)


class _Trace(BaseModel):
    """The run of one agent."""

    model_config = ConfigDict(strict=True, extra="forbid")
    agent: str
    reward: float = Finite
    rewards: dict[str, float]
    metrics: dict[str, float]
    num_turns: int


class Played(BaseModel):
    """The answer to `play`."""

    model_config = ConfigDict(strict=True, extra="forbid")
    ok: bool
    error: str
    traces: list[_Trace] = Field(max_length=10_000)

    def reward(self, role: str) -> float | None:
        """The mean reward of an agent's runs; None if it did not run."""
        found = [trace.reward for trace in self.traces if trace.agent == role]
        return fmean(found) if found else None


class Service:
    """The process of verifiers for one taskset with its settings. Starts again if it ended."""

    def __init__(self, python: str, config: VerifiersConfig) -> None:
        self._python, self._config = python, config
        self._what = f"the verifiers process of '{config.id}'"
        self._lock = threading.Lock()
        self._child: JsonChild | None = None
        self.opened = self._open()

    def running(self) -> JsonChild:
        """The process; started again, with the same tasks, if it ended."""
        with self._lock:
            if self._child is not None and self._child.is_alive:
                return self._child
            if self._open() != self.opened:
                raise LibraryError(
                    f"'{self._config.id}' has other roles or tasks than before; is it random?"
                )
            assert self._child is not None  # noqa: S101 - `_open` started it
            return self._child

    def close(self) -> None:
        """Stop the process."""
        with self._lock:
            if self._child is not None:
                self._child.stop()
                self._child = None

    def read(self, kind: type[ModelT], found: Any) -> ModelT:
        """An answer as its type; LibraryError if it is another."""
        try:
            return kind.model_validate(found)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the answer"
            raise self.malformed(f"{where}: {first['msg']}") from None

    def malformed(self, problem: str) -> LibraryError:
        """The error about an answer of another form."""
        return LibraryError(f"{self._what} sent a malformed answer: {problem}")

    def _open(self) -> Opened:
        config = self._config
        splits: dict[str, Any] = {"train": config.settings}
        if config.test_settings:
            splits["test"] = merged(config.settings, config.test_settings)
        if self._child is not None:
            self._child.stop()
        self._child = JsonChild([self._python, str(CHILD)], self._what)
        name = config.id.partition(":")[2]
        found = self._child.request(
            "open", config.load_timeout, name=name, splits=splits, num_tasks=config.num_tasks
        )
        opened = self.read(Opened, found)
        if set(opened.tasks) != set(splits) or not opened.tasks["train"]:
            raise self.malformed(f"tasks of {sorted(opened.tasks)}")
        return opened


@lru_cache(maxsize=8)
def service_of(python: str, child: Path, config: str) -> Service:
    """The process of a config, shared by all its environments here: starting it takes seconds."""
    return Service(python, VerifiersConfig.model_validate_json(config))


class VerifiersTaskset(Workflow[VerifiersConfig]):
    """An installed taskset of verifiers with its environment. Each agent is a role."""

    Config = VerifiersConfig
    limit_level = "agent"

    def __init__(self, config: VerifiersConfig) -> None:
        super().__init__(config)
        self.id = config.id
        if not NAME.fullmatch(config.id.partition(":")[2]):
            raise LibraryError(
                f"'{config.id}': expected the name of an installed taskset, such as "
                "verifiers:gsm8k-v1"
            )
        self._service = service_of(interpreter(), CHILD, config.model_dump_json())
        self._opened = self._service.opened
        self._tasks = {split: list(self._split(split)) for split in ("train", "test")}
        self._check_tasks()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self._opened.roles)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    async def run(self, task: Task, agents: Agents) -> Played:
        child = await asyncio.to_thread(self._service.running)
        answer = child.send(
            "play",
            split=task.data["split"],
            index=task.data["index"],
            key=task.data["key"],
            access={role: agents.openai(role) for role in self.roles},
        )
        try:
            found = await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            child.cancel(answer)
            raise
        played = self._service.read(Played, found)
        if not played.ok:
            reason = " ".join(played.error.split()) or "the episode failed"
            raise LibraryError(f"verifiers: {reason}")
        if unknown := {trace.agent for trace in played.traces} - set(self._opened.agents):
            raise self._service.malformed(f"unknown agents {sorted(unknown)}")
        return played

    def score(self, task: Task, result: Played) -> Rewards:
        rewards = {role: result.reward(role) for role in self.roles}
        return Rewards(
            agent={role: Scored(value) for role, value in rewards.items() if value is not None}
        )

    def success(self, state: Any, role: str) -> bool:
        reward = state.reward(role)
        return reward is not None and reward >= self.config.success_reward

    def close(self) -> None:
        """Stop the process. It starts again when an episode needs it."""
        self._service.close()

    def _split(self, split: str) -> Iterator[Task]:
        tasks = self._opened.tasks
        source = split if split in tasks else "train"
        num_train = len(tasks["train"])
        for at, one in enumerate(tasks[source]):
            is_last_of_few = at == num_train - 1 < HELD_OUT
            is_test = at % HELD_OUT == HELD_OUT - 1 or is_last_of_few
            if "test" in tasks or is_test == (split == "test"):
                data = {"split": source, **one.model_dump()}
                yield Task(f"{source}-{one.index}", data, seed=one.index)

    def _check_tasks(self) -> None:
        train = {task.data["key"] for task in self._tasks["train"]}
        both = [t.data["name"] for t in self._tasks["test"] if t.data["key"] in train]
        if both and self.config.test_settings:
            raise LibraryError(
                f"'{self.id}': {len(both)} test tasks are training tasks too, such as "
                f"'{both[0]}'; set env.test_settings to another split"
            )
        self._tasks["test"] = [t for t in self._tasks["test"] if t.data["key"] not in train]
        if not self._tasks["test"] or not self._tasks["train"]:
            raise LibraryError(
                f"'{self.id}' has a single distinct task; set env.num_tasks or env.test_settings"
            )


def interpreter() -> str:
    """The Python interpreter of the virtual environment of verifiers."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        raise LibraryError(
            "verifiers needs a separate virtual environment; run "
            f"`bash scripts/verifiers.sh FOLDER` and set {VARIABLE}=FOLDER"
        )
    path = Path(given) / "bin" / "python" if Path(given).is_dir() else Path(given)
    if not path.is_file():
        raise LibraryError(
            f"{VARIABLE} is '{given}', which has no bin/python; run "
            "`bash scripts/verifiers.sh FOLDER` and set it to FOLDER"
        )
    return str(path)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables as one; those of the second win."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)
