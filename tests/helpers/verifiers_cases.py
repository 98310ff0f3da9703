"""Runs of verifiers' own `vf-eval` in its virtual environment, and replies that both sides give."""

import asyncio
import hashlib
import json
import os
import re
import subprocess
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted_server import scripted_server
from toys import AnsweringSampler

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment, Workflow
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.programs import ProgramRollout, ProgramThread
from pettingllms.inference.http import JsonRenderer
from pettingllms.rollouts import Player, Worker
from pettingllms.types import Episode, Failed, SampleRequest, Task

ROOT = Path(__file__).parents[2]
TASKSETS = Path(__file__).parent / "verifiers_tasksets"
Chat = list[dict[str, Any]]
Reply = Callable[[Chat], str]

needs_verifiers = pytest.mark.skipif(
    "PETTINGLLMS_VERIFIERS" not in os.environ,
    reason="set PETTINGLLMS_VERIFIERS to the folder that scripts/verifiers.sh made",
)


def key_of(chat: Chat) -> str:
    """A chat as a key; images by their digest, however they are sent."""
    plain = []
    for message in chat:
        content = message["content"]
        if isinstance(content, list):
            content = [_part(part) for part in content]
        plain.append([message["role"], content])
    return json.dumps(plain)


def _part(part: Mapping[str, Any]) -> str:
    if part["type"] == "text":
        return str(part["text"])
    url = str(part["image_url"]["url"])
    head, _, data = url.partition("base64,")
    return hashlib.sha256(b64decode(data)).hexdigest() if head != url else url


def chat_of(request: SampleRequest) -> Chat:
    """The chat of a request whose prompt `JsonRenderer` wrote."""
    chat: Chat = json.loads(bytes(request.prompt_ids.tolist()))
    return chat


def by_reply(reply: Reply) -> Callable[[SampleRequest, int], str | Failed]:
    return lambda request, number: reply(chat_of(request))


def play_here(
    env: Environment[Any, Any], tasks: Sequence[Task], reply: Reply, seed: int = 0
) -> list[Episode]:
    """One episode per task by the real rollout worker, with the gateway for workflows."""

    async def run() -> list[Episode]:
        sampler, renderer = AnsweringSampler(by_reply(reply)), JsonRenderer(supports_images=True)
        players = {role: Player("p", sampler, renderer) for role in env.roles}
        config = RolloutConfig(
            type="linear", num_samples=1, max_reply_tokens=100_000, env_timeout=60
        )
        episodes: list[Episode] = []
        if not isinstance(env, Workflow):
            await Worker(env, players, config, RewardConfig()).run(tasks, seed, episodes.append)
            return episodes
        gateway, thread = await Gateway.start(lambda _: None), ProgramThread()
        thread.start()
        program = ProgramRollout(gateway, thread, config)
        worker = Worker(env, players, config, RewardConfig(), run_workflow=program)
        try:
            await worker.run(tasks, seed, episodes.append)
        finally:
            await gateway.stop()
            thread.stop()
        return episodes

    found = {episode.task.id: episode for episode in asyncio.run(run())}
    return [found[task.id] for task in tasks]


def vf_eval(out: Path, taskset: str, reply: Reply, *options: str) -> list[dict[str, Any]]:
    """The episodes that verifiers' own command recorded, in the order of the tasks."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(TASKSETS)]),
        "HOME": str(out),
    }
    with scripted_server(reply) as url:
        words = [
            f"{os.environ['PETTINGLLMS_VERIFIERS']}/bin/vf-eval", taskset, "--model", "scripted",
            "--client.base-url", url, "--client.api-key-var", "NO_KEY", "--no-push", "--no-rich",
            "--output-dir", str(out), "--run.name", "run", *options,
        ]  # fmt: skip
        done = subprocess.run(
            words,
            env=environment,
            cwd=out,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (out / "run" / "traces.jsonl").read_text().splitlines()
    return sorted(map(json.loads, lines), key=lambda one: int(one["task"]["data"]["idx"]))


def reward_of(trace: Mapping[str, Any]) -> float:
    return sum(one["score"] * one["weight"] for one in trace["rewards"].values())


@contextmanager
def tasksets_on_path() -> Iterator[None]:
    """Let the child process import the tasksets of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TASKSETS))
        yield


class HashedReply:
    """Replies that depend on the whole chat: often right, sometimes wrong, at times nonsense.

    With `counts`, a chat that is asked again gets another reply. Concurrent episodes must then have
    different chats.
    """

    def __init__(self, counts: bool = False) -> None:
        self._counts = counts
        self._asked: Counter[str] = Counter()

    def __call__(self, chat: Chat) -> str:
        text = "\n".join(str(message["content"]) for message in chat)
        key = key_of(chat)
        self._asked[key] += self._counts
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        at = int(hashlib.sha256(f"{key}{self._asked[key]}".encode()).hexdigest(), 16)
        pool = [
            str(sum(numbers)),
            text.rpartition(":")[2].strip()[::-1],
            str(numbers[-1] if numbers else 3),
            "higher numbers are better because " + text[-20:],
            str(at % 10),
            "###DONE###",
        ]
        return pool[at % len(pool)]
