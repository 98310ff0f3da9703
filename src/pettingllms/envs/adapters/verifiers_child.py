"""Runs in the virtual environment of verifiers: loads tasksets and plays episodes on request.

Started as a script by `envs/adapters/verifiers.py`. It imports verifiers and the standard library
only, because this package need not be installed beside verifiers. Requests and answers are lines of
JSON on stdin and stdout; what libraries print goes to stderr.
"""

import asyncio
import copy
import json
import os
import sys
import types
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules have the names of libraries

import httpx
import verifiers
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

HARNESS = "pettingllms_chat"
MAX_REQUEST = 2**24
MAX_TASKS = 1_000_000
SHOWN = 2000


class ChatConfig(vf.HarnessConfig):
    """The plain chat has no options."""

    id: str = HARNESS


class Chat(vf.Harness[ChatConfig]):
    """A chat without tools, in this process: no program to install, no model-generated code."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> ProgramResult:
        """Ask for one reply to the conversation."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        body = {"model": ctx.model, "messages": messages}
        async with httpx.AsyncClient(  # the interception server of this process; no TLS to set up
            trust_env=False,
            verify=endpoint.startswith("https:"),
            timeout=None,  # noqa: S113 - the rollout has a deadline
        ) as client:
            reply = await client.post(
                f"{endpoint}/chat/completions",
                json=body,
                headers={"authorization": f"Bearer {secret}"},
            )
        if reply.status_code != httpx.codes.OK:
            return ProgramResult(1, "", reply.text[:SHOWN])
        return ProgramResult(0, "", "")


def register_chat() -> None:
    """Make the harness known to verifiers, which finds plugins by the name of a module."""
    module = types.ModuleType(HARNESS)
    module.Chat = Chat  # type: ignore[attr-defined]
    module.__all__ = ["Chat"]  # type: ignore[attr-defined]
    sys.modules[HARNESS] = module


class Refused(Exception):  # noqa: N818 - the message is the answer
    """A request that cannot be met; its message is shown to the user."""


class Split:
    """An environment of verifiers, its tasks, and its roles."""

    def __init__(self, name: str, settings: dict[str, Any], num_tasks: int) -> None:
        self.env = load_environment(env_config(name, settings))
        agents = agents_of(self.env.config)
        self.agents = list(agents)
        self.roles = [role for role, agent in agents.items() if agent.client is None]
        if not self.roles:
            raise Refused(f"all agents of '{name}' have a client; leave out `client` of one")
        self.tasks = list(self.env.taskset.take(num_tasks))
        if not self.tasks:
            raise Refused(f"the taskset '{name}' has no tasks")

    def described(self) -> list[dict[str, Any]]:
        """The tasks, as far as episodes record them."""
        return [
            {
                "index": at,
                "key": str(task.key),
                "name": str(task.data.name or task.data.id or at),
                "prompt": task.data.prompt_text[:SHOWN],
            }
            for at, task in enumerate(self.tasks)
        ]

    async def play(self, index: int, key: str, access: dict[str, dict[str, str]]) -> dict[str, Any]:
        """Play an episode, with an endpoint per role, and describe the traces."""
        task = self.tasks[index]
        if task.key != key:
            raise Refused(f"task {index} has changed since the run started; is it random?")
        variables = {role: f"PETTINGLLMS_API_KEY_{id(access)}_{role}" for role in self.roles}
        env = copy.copy(self.env)  # shares servers with the original
        env.config = self.env.config.model_copy(
            update={
                role: getattr(self.env.config, role).model_copy(
                    update={
                        "client": vf.EvalClientConfig(
                            base_url=access[role]["base_url"], api_key_var=variables[role]
                        )
                    }
                )
                for role in self.roles
            }
        )
        os.environ.update({variables[role]: access[role]["api_key"] for role in self.roles})
        try:
            ctx = vf.ModelContext(
                client=vf.EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="NO_KEY"),
                model="policy",
            )
            episode = await env.run_episode(task, ctx)
        finally:
            for variable in variables.values():
                os.environ.pop(variable, None)
        return described(episode)


def described(episode: Any) -> dict[str, Any]:
    """What the parent reads of an episode."""
    errors = [*episode.errors, *(e for trace in episode.traces for e in trace.errors)]
    return {
        "ok": episode.ok,
        "error": "" if episode.ok else "; ".join(f"{e.type}: {e.message}"[:SHOWN] for e in errors),
        "traces": [
            {
                "agent": trace.agent.name,
                "reward": trace.reward,
                "rewards": {name: one.value for name, one in trace.rewards.items() if one},
                "metrics": {name: one for name, one in trace.metrics.items() if one is not None},
                "num_turns": trace.num_turns,
            }
            for trace in episode.traces
        ],
    }


def agents_of(config: Any) -> dict[str, Any]:
    """The agents that an environment's config declares, by name."""
    return {name: value for name, value in config if isinstance(value, vf.AgentConfig)}


def env_config(name: str, settings: dict[str, Any]) -> Any:
    """The config of an environment; agents without a harness get the plain chat."""
    settings = copy.deepcopy(settings)
    taskset = settings.setdefault("taskset", {})
    if not isinstance(taskset, dict):
        raise Refused("settings.taskset is not a table")
    taskset["id"] = name
    config = resolve_env_config(settings)
    update = {}
    for role, agent in agents_of(config).items():
        given = settings.get(role) or {}
        new = {}
        is_default = agent.harness is None and vf.default_agent_harness(name).id == "bash"
        is_null = agent.harness is not None and agent.harness.id == "null"
        if (is_default or is_null) and "harness" not in given:
            new["harness"] = {"id": HARNESS}
        if agent.runtime.type == "prime" and "runtime" not in given:
            new["runtime"] = {"type": "subprocess"}
        if new:
            data = {**agent.model_dump(exclude_unset=True), **new}
            update[role] = type(agent).model_validate(data)
    config = config.model_copy(update=update)
    for role, agent in agents_of(config).items():
        check_agent(role, agent)
    return config


def check_agent(role: str, agent: Any) -> None:
    """Refuse agents that would run model-generated code on this machine."""
    from verifiers.v1.utils.loaders import harness_class

    harness = harness_class(agent.harness.id) if agent.harness else vf.Harness
    if harness.EXECUTES_CODE and agent.runtime.type == "subprocess":
        raise Refused(
            f"the harness of '{role}' would run model-generated code outside "
            f'a sandbox; set settings.{role}.runtime.type = "docker", or choose another harness'
        )


class Server:
    """Answers requests until stdin closes."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._splits: dict[str, Split] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._stack = AsyncExitStack()

    async def run(self) -> None:
        """Read requests and start a task for each."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_REQUEST)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async with self._stack:
            while line := await reader.readline():
                request = json.loads(line)
                if request["call"] == "cancel":
                    if task := self._running.get(request["of"]):
                        task.cancel()
                    continue
                number = request["id"]
                task = asyncio.create_task(self._answer(request))
                self._running[number] = task
                task.add_done_callback(partial(self._forget, number))
            for task in list(self._running.values()):
                task.cancel()

    def _forget(self, number: int, _: object) -> None:
        self._running.pop(number, None)

    async def _answer(self, request: dict[str, Any]) -> None:
        number = request.pop("id")
        call = getattr(self, f"call_{request.pop('call')}")
        try:
            text = json.dumps({"id": number, "result": await call(**request)}, allow_nan=False)
        except Exception as error:  # noqa: BLE001 - tasksets are user code
            kind = "" if isinstance(error, Refused) else f"{type(error).__name__}: "
            text = json.dumps({"id": number, "error": f"{kind}{error}"[:SHOWN]})
        except asyncio.CancelledError:
            text = json.dumps({"id": number, "error": "cancelled"})
        self._answers.write(text + "\n")
        self._answers.flush()

    async def call_open(
        self, name: str, splits: dict[str, dict[str, Any]], num_tasks: int
    ) -> dict[str, Any]:
        """Load the taskset once per split and start the servers of its environments."""
        for split, settings in splits.items():
            self._splits[split] = Split(name, settings, min(num_tasks, MAX_TASKS))
            await self._stack.enter_async_context(self._splits[split].env.serving())
        return {
            "version": verifiers.__version__,
            "roles": self._splits["train"].roles,
            "agents": self._splits["train"].agents,
            "tasks": {split: one.described() for split, one in self._splits.items()},
        }

    async def call_play(
        self, split: str, index: int, key: str, access: dict[str, dict[str, str]]
    ) -> dict[str, Any]:
        """Play one episode."""
        return await self._splits[split].play(index, key, access)


def main() -> None:
    """Serve stdin and stdout; output of libraries goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        register_chat()
        asyncio.run(Server(answers).run())


if __name__ == "__main__":
    main()
