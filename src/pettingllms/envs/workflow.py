"""The workflow contract: existing agent programs that run themselves and call their roles.

A LangGraph graph, a group chat or a loop around an OpenAI client has no state that a rollout could
fork. The program receives one endpoint per role, makes ordinary model calls, and is scored by its
result. The gateway records the calls as turns, so workflow authors see no tokens either.
"""

import inspect
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, NoReturn, TypeVar

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.envs.base import Environment, StepResult
from pettingllms.errors import ForkError
from pettingllms.types import Message, Reward, Rewards, Task, user

ROLE_HEADER = "x-pettingllms-role"


class WorkflowConfig(EnvConfig):
    """Options of every workflow. A workflow may add fields."""

    seconds: float = Field(default=600.0, gt=0)
    """Timeout for one run of the program; its episode then fails. Time that calls wait for a busy
    engine does not count."""
    guided: bool = False
    """Apply structured output to the replies of trained roles too. Such replies are excluded from
    training, because a schema changes the sampling distribution and so the log-probs. If false,
    trained roles only see the schema in their prompt and may violate it."""


ConfigT = TypeVar("ConfigT", bound=WorkflowConfig)


@dataclass(frozen=True, slots=True)
class RoleRule:
    """Routes calls of a client that serves several roles: a matching call is for `role`."""

    role: str
    where: Literal["system", "header", "model"]
    """`system`: the system prompt contains `value`. `header`: the header `name` equals `value`.
    `model`: the requested model is `value`."""
    value: str
    name: str = ROLE_HEADER


@dataclass(frozen=True, slots=True)
class Agents:
    """Endpoints of the roles for one run of a program. The API keys expire with the run."""

    url: str
    """URL of the gateway."""
    key: str
    """API key for all roles."""
    keys: Mapping[str, str]
    """API keys for one role each."""
    reward_key: str = field(repr=False)
    """API key for posting rewards over HTTP; it cannot call models. Keep it away from the agents:
    an agent that has it can reward itself."""
    seed: int
    """Seed for the program's own randomness."""
    post: Callable[[Rewards], None]
    """Receives rewards while the program runs."""

    def openai(self, role: str | None = None) -> dict[str, str]:
        """`base_url` and `api_key` of an OpenAI client, for one role or for all."""
        return {"base_url": f"{self.anthropic(role)['base_url']}/v1", "api_key": self._key(role)}

    def anthropic(self, role: str | None = None) -> dict[str, str]:
        """`base_url` and `api_key` of an Anthropic client."""
        path = "" if role is None else f"/roles/{role}"
        return {"base_url": f"{self.url}{path}", "api_key": self._key(role)}

    def rewards(self) -> dict[str, str]:
        """`url` and `api_key` for posting rewards over HTTP."""
        return {"url": f"{self.url}/v1/rewards", "api_key": self.reward_key}

    def environment(self, rewards: bool = False) -> dict[str, str]:
        """Environment variables for a subprocess: those of the vendors' clients and two per role.

        `rewards` adds the reward endpoint. Use it only if agents cannot read their environment.
        """
        found = {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": self.key,
            "PETTINGLLMS_SEED": str(self.seed),
        }
        for role in self.keys:
            access, name = self.openai(role), role.upper().replace("-", "_")
            found[f"PETTINGLLMS_URL_{name}"] = access["base_url"]
            found[f"PETTINGLLMS_KEY_{name}"] = access["api_key"]
        if rewards:
            found["PETTINGLLMS_REWARD_URL"] = self.rewards()["url"]
            found["PETTINGLLMS_REWARD_KEY"] = self.reward_key
        return found

    def add_rewards(
        self,
        *,
        process: Mapping[str, Reward] | None = None,
        agent: Mapping[str, Reward] | None = None,
        team: Reward | None = None,
    ) -> None:
        """Give rewards while the program runs.

        `process` rewards a role's latest reply, `agent` a role, and `team` all roles.
        """
        self.post(Rewards(process or {}, agent or {}, team))

    def _key(self, role: str | None) -> str:
        return self.key if role is None else self.keys[role]


class Workflow(Environment[Any, ConfigT], Generic[ConfigT]):
    """A program whose roles are trained. The result of `run` takes the place of a final state.

    `run` may be `async` or not. Use `await command(...)` in it to run a subprocess.
    """

    Config: ClassVar[type[EnvConfig]] = WorkflowConfig
    rules: Sequence[RoleRule] = ()
    """How to route calls to roles where one client serves several roles."""
    can_fork = False
    has_centralized_observation = False
    late_rewards = True
    limit_level: Literal["agent", "team"] = "team"

    @classmethod
    def create(cls, config: ConfigT) -> "Environment[Any, Any]":
        """Create the workflow for a config."""
        if config.solo:
            raise ValueError("a workflow has no solo form; remove env.solo")
        return cls(config)

    @abstractmethod
    def run(self, task: Task, agents: Agents) -> Any:
        """Run the program on a task and return its result. Prefer `async`."""

    @abstractmethod
    def score(self, task: Task, result: Any) -> Rewards:
        """Rewards for the result, in addition to those given while the program ran."""

    def example(self) -> Sequence[Message]:
        """A typical prompt, used by the canary that compares sampler and learner log-probs."""
        task = self.tasks("train")[0]
        return [user(json.dumps(dict(task.data), sort_keys=True, default=str))]

    @property
    def is_async(self) -> bool:
        """Whether `run` is a coroutine."""
        return inspect.iscoroutinefunction(self.run)

    def reset(self, task: Task, seed: int) -> NoReturn:
        self._reject()

    def acting(self, state: Any) -> tuple[str, ...]:
        self._reject()

    def observe(self, state: Any, role: str) -> Sequence[Message]:
        self._reject()

    def step(self, state: Any, replies: Mapping[str, str]) -> StepResult[Any]:
        self._reject()

    def _reject(self) -> NoReturn:
        raise ForkError(
            f"'{self.id}' is a workflow and has no state to step or fork; run it with "
            "`pettingllms train` or `pettingllms eval`, with a policy for every role"
        )
