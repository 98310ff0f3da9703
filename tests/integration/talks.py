"""Workflows in a user's file: two agents talk, in each of the ways in which programs can run."""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pettingllms import Agents, Rewards, Scored, Task, Workflow, command


def say(url: str, key: str, chat: list[Any]) -> str:
    """The reply to a chat, which is added to it."""
    body = json.dumps({"model": "any", "messages": chat}).encode()
    request = urllib.request.Request(  # noqa: S310 - the gateway
        f"{url}/chat/completions", body, {"x-api-key": key}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - the same
        message = json.load(answer)["choices"][0]["message"]
    chat.append({"role": "assistant", "content": message["content"] or ""})
    return message["content"] or ""


def talk(task: str, first: Sequence[str], second: Sequence[str]) -> list[str]:
    """What two agents say. `first` and `second` are their URLs and keys."""
    one = [{"role": "user", "content": f"task {task}"}]
    said = [say(*first, one)]
    other = [{"role": "user", "content": said[0]}]
    said.append(say(*second, other))
    one.append({"role": "user", "content": said[1]})
    return [*said, say(*first, one)]


class Talk(Workflow):
    """An async program."""

    id = "talk-v1"
    roles = ("a", "b")

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(f"{split}-{at}") for at in range(12)]

    async def run(self, task: Task, agents: Agents) -> list[str]:
        return await asyncio.to_thread(self.talk, task, agents)

    def talk(self, task: Task, agents: Agents) -> list[str]:
        first, second = (tuple(agents.openai(role).values()) for role in self.roles)
        said = talk(task.id, first, second)
        agents.add_rewards(process={"b": Scored(0.25)})
        return said

    def score(self, task: Task, result: Any) -> Rewards:
        return Rewards(team=Scored(sum(map(ord, "".join(result))) % 7 / 7))

    def success(self, state: Any, role: str) -> bool:
        return bool(state)


class Blocking(Talk):
    """A program that is not async."""

    id = "blocking_talk-v1"

    def run(self, task: Task, agents: Agents) -> list[str]:
        return self.talk(task, agents)


class Commanded(Talk):
    """A program in a separate process."""

    id = "commanded_talk-v1"

    async def run(self, task: Task, agents: Agents) -> list[str]:
        return await command([sys.executable, str(Path(__file__)), task.id], agents)


if __name__ == "__main__":
    known = {
        name: os.environ[f"PETTINGLLMS_{name}"] for name in ("URL_A", "KEY_A", "URL_B", "KEY_B")
    }
    print(
        json.dumps(
            talk(sys.argv[1], (known["URL_A"], known["KEY_A"]), (known["URL_B"], known["KEY_B"]))
        )
    )
