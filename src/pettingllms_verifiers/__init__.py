"""Environments of PettingLLMs as a taskset of verifiers.

    vf-eval pettingllms-verifiers --env.taskset.env sokoban-v1

Needs `pip install pettingllms verifiers` in one virtual environment. The served model plays all
roles, or one role beside a scripted co-player (`--env.role`, `--env.player`). Every turn shows the
observation of that turn alone, as in training here.
"""

import base64
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal

import httpx
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.runtimes import ProgramResult

from pettingllms.envs import make_env
from pettingllms.exchange.play import CoPlayers, play_episode
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Task

__all__ = ["ObservationHarness", "PettingEnv", "PettingTaskset"]

NAME = "pettingllms-verifiers"
SHOWN = 2000


class PettingConfig(vf.TasksetConfig):
    """Options of the taskset, under `--env.taskset.*`."""

    env: str = "tic_tac_toe-v1"
    """Name of the environment, as listed by `pettingllms list envs --all`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the environment: those of the [env] section of a PettingLLMs config."""
    split: Literal["train", "test"] = "test"
    """Tasks to load."""
    seed: int = 0
    """Seed of the episodes. All rollouts of a task start from the same state."""


class PettingData(vf.TaskData):
    """One task and the seed of its episodes."""

    task_id: str
    data: dict[str, Any]
    task_seed: int
    seed: int


class PettingTask(vf.Task[PettingData, vf.State, vf.TaskConfig]):
    """Scored by the environment while it is played."""


class PettingTaskset(vf.Taskset[PettingTask, PettingConfig]):
    """The tasks of one environment."""

    def __init__(self, config: PettingConfig) -> None:
        super().__init__(config)
        self.env = make_env(config.env, **config.options)

    def load(self) -> Iterable[PettingTask]:
        """The tasks of the split, in the order of the environment."""
        for task in self.env.tasks(self.config.split):
            data = PettingData(
                name=task.id,
                task_id=task.id,
                data=dict(task.data),
                task_seed=task.seed,
                seed=derive_seed("env", self.config.seed, task.id),
            )
            yield PettingTask(data, self.config.task)


class ObservationConfig(vf.HarnessConfig):
    """The harness has no options."""

    id: str = NAME


class ObservationHarness(vf.Harness[ObservationConfig]):
    """Asks the model for one reply to each observation, without earlier turns. Runs no program."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, *_: Any, **__: Any) -> ProgramResult:
        """Never: the environment opens every exchange."""
        return ProgramResult(1, "", f"{NAME} needs the environment of the taskset {NAME}")

    async def resume(
        self,
        ctx: Any,
        trace: Any,  # noqa: ARG002 - the contract of harnesses
        runtime: Any,  # noqa: ARG002 - runs no program
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],  # noqa: ARG002 - no tools
        data: Any,  # noqa: ARG002 - the observation is the whole prompt
        messages: Any,
        tool_interception_url: str | None = None,  # noqa: ARG002 - no tools
    ) -> ProgramResult:
        """Send the observation of this turn."""
        body = {"model": ctx.model, "messages": [message_to_wire(one) for one in messages]}
        headers = {"authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(  # the interception server of this process; no TLS to set up
            trust_env=False,
            verify=endpoint.startswith("https:"),
            timeout=None,  # noqa: S113 - the rollout has a deadline
        ) as client:
            reply = await client.post(f"{endpoint}/chat/completions", json=body, headers=headers)
        if reply.status_code != httpx.codes.OK:
            return ProgramResult(1, "", reply.text[:SHOWN])
        return ProgramResult(0, "", "")


class PettingEnvConfig(vf.EnvConfig):
    """Options of the environment, under `--env.*`."""

    agent: vf.AgentConfig = vf.AgentConfig(
        harness=ObservationConfig(), runtime=vf.SubprocessConfig()
    )
    """The served model."""
    role: str = ""
    """The role that it plays. Empty: all roles, each with a trace."""
    player: str = "random"
    """Scripted player of the other roles, as listed by `pettingllms list envs`."""
    max_steps: int = Field(200, ge=1)
    """Environment steps after which an episode is cut."""


class PettingEnv(vf.Env[PettingEnvConfig]):
    """Plays an episode; every role of the served model has a trace with its rewards."""

    def __init__(self, config: PettingEnvConfig) -> None:
        super().__init__(config)
        self.players = CoPlayers.for_role(self.taskset.env, config.role, config.player)

    async def run(self, task: PettingTask, agents: vf.Agents) -> None:
        """One episode of the environment."""
        data, env, opened = task.data, self.taskset.env, dict[str, Any]()
        async with AsyncExitStack() as stack:

            async def ask(role: str, seen: Sequence[Message]) -> str | None:
                if role not in opened:
                    opened[role] = await stack.enter_async_context(agents.agent.interaction(task))
                    opened[role].trace.info["role"] = role
                segment = await opened[role].turn([wire(message) for message in seen])
                if not segment.terminated:
                    return str(segment.messages[-1].content or "")
                if opened[role].trace.errors:
                    raise RuntimeError(f"{role}: {opened[role].trace.last_error.message}")
                return None

            results = await play_episode(
                env,
                Task(data.task_id, data.data, data.task_seed),
                data.seed,
                ask,
                self.players,
                self.config.max_steps,
            )
        for role, interaction in opened.items():
            for level, value in results[role].rewards.items():
                interaction.trace.record_reward(level, value)
            interaction.trace.record_metric("success", float(results[role].success))


def wire(message: Message) -> dict[str, Any]:
    """A message in the format of the OpenAI API, with images as data URLs."""
    if not message.images:
        return {"role": message.speaker, "content": message.text}
    urls = [f"data:image/png;base64,{base64.b64encode(i.data).decode()}" for i in message.images]
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": u}} for u in urls]
    return {"role": message.speaker, "content": [*parts, {"type": "text", "text": message.text}]}
