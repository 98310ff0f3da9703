"""Workflows that tests run: small programs around plain HTTP calls."""

import asyncio
import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from toys import AnsweringSampler

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Agents, Split, Workflow, WorkflowConfig, command
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.programs import ProgramRollout, ProgramThread
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import Episode, Rewards, SampleRequest, Scored, Task

PROGRAM = """
import json, os, sys, urllib.request
told = json.load(sys.stdin)
body = {"model": "any", "messages": [{"role": "user", "content": told}]}
said = []
for role in ("A", "B"):
    request = urllib.request.Request(
        os.environ["PETTINGLLMS_URL_" + role] + "/chat/completions",
        json.dumps(body).encode(),
        {"authorization": "Bearer " + os.environ["PETTINGLLMS_KEY_" + role]},
    )
    answer = json.load(urllib.request.urlopen(request))
    said.append(answer["choices"][0]["message"]["content"])
print("thinking aloud")
print(json.dumps(said))
"""


def call(agents: Agents, role: str | None, messages: list[Any], **more: Any) -> Any:
    """One chat completion, waited for."""
    access = agents.openai(role)
    return post(f"{access['base_url']}/chat/completions", access["api_key"],
                {"model": "any", "messages": messages, **more})  # fmt: skip


def post(url: str, key: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(  # noqa: S310 - a test's own server
        url, json.dumps(body).encode(), {"authorization": f"Bearer {key}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - the same
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeError(error.read().decode()) from None


class Two(Workflow[WorkflowConfig]):
    """a says something, then b twice in one chat; the last reply decides the team's reward."""

    id = "two-v1"

    @property
    def roles(self) -> tuple[str, ...]:
        return ("a", "b")

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{at}", {"at": at}) for at in range(4)]

    async def run(self, task: Task, agents: Agents) -> Any:
        return await asyncio.to_thread(self.talk, task, agents)

    def talk(self, task: Task, agents: Agents) -> Any:
        first = call(agents, "a", [{"role": "user", "content": f"task {task.id}"}])
        chat = [{"role": "user", "content": first["choices"][0]["message"]["content"]}]
        second = call(agents, "b", chat)["choices"][0]["message"]
        chat += [second, {"role": "user", "content": "again"}]
        return call(agents, "b", chat)["choices"][0]["message"]["content"]

    def score(self, task: Task, result: Any) -> Rewards:
        return Rewards(team=Scored(sum(map(ord, result)) % 7 / 7))

    def success(self, state: Any, role: str) -> bool:
        return bool(state)


class Plain(Two):
    """The same, not async."""

    id = "plain-v1"

    def run(self, task: Task, agents: Agents) -> Any:
        return self.talk(task, agents)


class Commanded(Two):
    """A program in a separate process."""

    id = "commanded-v1"

    async def run(self, task: Task, agents: Agents) -> Any:
        said = await command([sys.executable, "-c", PROGRAM], agents, given=task.id)
        return "".join(said)


class Paying(Two):
    """Adds rewards during the episode, by HTTP and in process."""

    id = "paying-v1"

    def talk(self, task: Task, agents: Agents) -> Any:
        first = call(agents, "a", [{"role": "user", "content": "x"}])
        call(agents, "b", [{"role": "user", "content": "y"}])
        access = agents.rewards()
        name = first["id"].replace("chatcmpl-", "msg_")
        reward = {"level": "process", "role": "a", "value": 0.25, "reply": name}
        post(access["url"], access["api_key"], reward)
        agents.add_rewards(agent={"b": Scored(0.5)})
        agents.add_rewards(team=Scored(0.125))
        return "paid"

    def score(self, task: Task, result: Any) -> Rewards:
        return Rewards(team=Scored(1.0))


class Broken(Two):
    """Fails as the task says."""

    id = "broken-v1"
    held = threading.Event()
    """Set when the call that the program does not await is in progress."""

    def tasks(self, split: Split) -> Sequence[Task]:
        kinds = ("raises", "silent", "unpaid", "leaves", "stray", "exits")
        return [Task(kind) for kind in kinds]

    async def run(self, task: Task, agents: Agents) -> Any:
        chat = [{"role": "user", "content": task.id}]
        match task.id:
            case "silent":
                return "x"
            case "leaves":
                self.left = asyncio.create_task(asyncio.to_thread(call, agents, "b", chat))
                await asyncio.to_thread(call, agents, "a", chat)
                await asyncio.to_thread(self.held.wait, 30)
                return "x"
            case "exits":
                await command([sys.executable, "-c", "import sys; sys.exit('no luck')"], agents)
        await asyncio.to_thread(call, agents, "a", chat)
        if task.id == "raises":
            raise RuntimeError("out of luck")
        return "x"

    def score(self, task: Task, result: Any) -> Rewards:
        if task.id == "unpaid":
            return Rewards()
        if task.id == "stray":
            return Rewards(agent={"zoe": Scored(1.0)})
        return Rewards(team=Scored(1.0))


def by_seed(request: SampleRequest, number: int) -> str:
    return f"{request.role} {request.seed % 1000}"


def play(
    workflow: Workflow[Any],
    num_tasks: int = 2,
    answer: Any = by_seed,
    sampler: type[AnsweringSampler] = AnsweringSampler,
    **rollout: Any,
) -> list[Episode]:
    async def run() -> list[Episode]:
        asked = sampler(answer)
        players = {role: Player(f"p_{role}", asked, ByteRenderer()) for role in workflow.roles}
        config = RolloutConfig(type="linear", **{"num_samples": 2, **rollout})
        gateway, thread = await Gateway.start(lambda _: None), ProgramThread()
        thread.start()
        worker = Worker(
            workflow,
            players,
            config,
            RewardConfig(),
            run_workflow=ProgramRollout(gateway, thread, config),
        )
        episodes: list[Episode] = []
        try:
            await worker.run(workflow.tasks("train")[:num_tasks], 5, episodes.append)
        finally:
            await gateway.stop()
            thread.stop()
        return sorted(episodes, key=lambda episode: episode.id)

    return asyncio.run(run())
