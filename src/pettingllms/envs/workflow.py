"""The contract for programs that somebody has already: they run alone, and call their roles.

A LangGraph graph, a group chat or a loop around an OpenAI client has no state that a rollout could
fork. It is started with addresses for its roles, makes ordinary model calls, and is scored when it
has come to its result. What its roles said is recorded where the calls arrive, so the author sees
no tokens here either.
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
    """What every workflow can be told. Workflows add fields of their own."""

    seconds: float = Field(default=600.0, gt=0)
    """How long one play of the program may take before its episode fails. The time that its calls
    wait for a busy engine does not count."""
    guided: bool = False
    """Hold replies to the schemas that the program asks for, also those of roles that learn. Such
    replies are not trained on: a schema narrows what can be sampled, so their log-probs are not
    the policy's own. Left out, roles that learn are shown the schema and may miss it."""


ConfigT = TypeVar("ConfigT", bound=WorkflowConfig)


@dataclass(frozen=True, slots=True)
class RoleRule:
    """Tells apart the roles of a program that has one client for several: a call is for `role` if
    it holds a text somewhere."""

    role: str
    where: Literal["system", "header", "model"]
    """`system`: the system prompt holds `value`. `header`: the header `name` is `value`. `model`:
    the model that is asked for is `value`."""
    value: str
    name: str = ROLE_HEADER


@dataclass(frozen=True, slots=True)
class Agents:
    """Where one play of a program finds its roles. The keys are valid for this play only."""

    url: str
    """Of the gateway."""
    key: str
    """Calls every role."""
    keys: Mapping[str, str]
    """Call one role each."""
    reward_key: str = field(repr=False)
    """Posts rewards over HTTP, and calls nothing. Keep it from the agents: whoever holds it can
    reward itself."""
    seed: int
    """For what the program itself leaves to chance."""
    post: Callable[[Rewards], None]
    """Takes rewards while the program runs."""

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
        """Variables for a separate program: those that the vendors' clients read, and one pair per
        role. With `rewards` it may also reward its roles: only for programs whose agents cannot
        read their environment."""
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

    def pay(
        self,
        *,
        process: Mapping[str, Reward] | None = None,
        agent: Mapping[str, Reward] | None = None,
        team: Reward | None = None,
    ) -> None:
        """Reward what was just said: `process` for a role's latest reply, `agent` for a role,
        `team` for all."""
        self.post(Rewards(process or {}, agent or {}, team))

    def _key(self, role: str | None) -> str:
        return self.key if role is None else self.keys[role]


class Workflow(Environment[Any, ConfigT], Generic[ConfigT]):
    """A program whose roles learn. Where an environment has a state, this has the result of `run`.

    `run` may be `async` or not; a program of its own is run with `await command(...)` inside it.
    """

    Config: ClassVar[type[EnvConfig]] = WorkflowConfig
    rules: Sequence[RoleRule] = ()
    """How calls are told apart where one client serves several roles."""
    can_fork = False
    can_show_all = False
    late_rewards = True
    limit_level = "team"

    @classmethod
    def create(cls, config: ConfigT) -> "Environment[Any, Any]":
        """The workflow that a configuration asks for."""
        if config.solo:
            raise ValueError("a workflow has no solo form; leave env.solo out")
        return cls(config)

    @abstractmethod
    def run(self, task: Task, agents: Agents) -> Any:
        """Play a task with the program, and give what it came to. Write it `async` if you can."""

    @abstractmethod
    def score(self, task: Task, result: Any) -> Rewards:
        """What the result is worth, beside what the program was paid while it ran."""

    def example(self) -> Sequence[Message]:
        """A prompt such as roles are shown, by which new weights are compared."""
        task = self.tasks("train")[0]
        return [user(json.dumps(dict(task.data), sort_keys=True, default=str))]

    @property
    def is_async(self) -> bool:
        """Whether `run` is a coroutine."""
        return inspect.iscoroutinefunction(self.run)

    def reset(self, task: Task, seed: int) -> NoReturn:
        self._refuse()

    def acting(self, state: Any) -> tuple[str, ...]:
        self._refuse()

    def observe(self, state: Any, role: str) -> Sequence[Message]:
        self._refuse()

    def step(self, state: Any, replies: Mapping[str, str]) -> StepResult[Any]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ForkError(
            f"'{self.id}' is a workflow, which runs by itself: it is played by `pettingllms train` "
            "and `pettingllms eval`, with policies in all its roles"
        )
