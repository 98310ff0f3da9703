"""Programs that die, abort a stream, retry or repeat calls: the record stays correct."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from gateways import Served, say_hello, served
from machines import inside, why_impossible

from pettingllms.errors import ClusterError
from pettingllms.gateway.session import UNDELIVERED, Limits
from pettingllms.types import Failed

HERE = Path(__file__).parent
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PATH = "/roles/planner/v1/chat/completions"


def head_of(gate: Served, body: bytes) -> bytes:
    return (
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gate.agents.key}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()


async def connect(gate: Served) -> Any:
    host, port = gate.gateway.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def ask(gate: Served, **more: Any) -> Any:
    headers = {"authorization": f"Bearer {gate.agents.key}"}
    async with httpx.AsyncClient() as http:
        return await http.post(gate.gateway.url + PATH, json={**CHAT, **more}, headers=headers)


def hold(gate: Served) -> asyncio.Event:
    """Block samplers until the event is set."""
    event, answer = asyncio.Event(), gate.sampler.sample

    async def wait(request: Any) -> Any:
        await event.wait()
        return await answer(request)

    gate.sampler.sample = wait  # type: ignore[method-assign]
    return event


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_reply_to_a_dead_program_is_not_trained_on() -> None:
    async def work(gate: Served) -> Any:
        go = hold(gate)
        body = json.dumps(CHAT).encode()
        _, writer = await connect(gate)
        writer.write(head_of(gate, body) + body)
        await until(lambda: gate.session.num_served == 1)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.2)
        go.set()
        await until(lambda: len(gate.turns) == 1)
        again = await ask(gate)
        return again.status_code, gate.close()

    status, episode = served(work)
    assert status == 200
    assert [turn.credit.failure for turn in episode.turns] == [UNDELIVERED, None]
    assert episode.failure is None
    assert [step.turns for step in episode.steps] == [(1,)]
    assert len(episode.turns[0].response_ids), "sampled ids are kept"


def test_an_aborted_stream_is_not_a_reply() -> None:
    async def work(gate: Served) -> Any:
        body = json.dumps({**CHAT, "stream": True}).encode()
        reader, writer = await connect(gate)
        writer.write(head_of(gate, body) + body)
        await reader.readuntil(b"data:")
        writer.transport.abort()
        await until(lambda: len(gate.turns) == 1)
        await asyncio.sleep(0.5)
        whole = await ask(gate, stream=True, max_tokens=50)
        assert whole.text.endswith("data: [DONE]\n\n")
        return gate.close()

    # More than all buffers in between can hold, so that the program leaves before the end.
    limits = Limits(max_reply_tokens=10**6)
    episode = served(work, answer=lambda *_: "word " * 60_000, limits=limits)
    assert [turn.credit.failure for turn in episode.turns] == [UNDELIVERED, None]
    assert [step.turns for step in episode.steps] == [(1,)]


def test_a_retry_and_a_second_call_are_separate_turns() -> None:
    async def work(gate: Served) -> Any:
        answers = [await ask(gate), *await asyncio.gather(ask(gate), ask(gate))]
        return {answer.json()["id"] for answer in answers}, gate.sampler.requests, gate.close()

    ids, requests, episode = served(work)
    assert len(ids) == len(episode.turns) == len(episode.steps) == 3
    assert len({request.seed for request in requests}) == 3, "the same prompt, different seeds"
    assert episode.failure is None


def test_concurrent_calls_cannot_exceed_the_limit() -> None:
    async def work(gate: Served) -> Any:
        go = hold(gate)
        calls = [asyncio.create_task(ask(gate)) for _ in range(5)]
        await until(lambda: sum(call.done() for call in calls) == 3)
        go.set()
        return sorted([(await call).status_code for call in calls]), gate.close()

    statuses, episode = served(work, limits=Limits(max_calls=2))
    assert statuses == [200, 200, 400, 400, 400]
    assert episode.failure == Failed("cut after 2 calls (rollout.max_steps)", "limit")


def test_a_failing_sampler_causes_an_error_that_clients_retry() -> None:
    results = iter([Failed("no memory left", "sampler"), None])

    def answer(request: Any, number: int) -> Any:
        return next(results) or say_hello(request, number)

    async def work(gate: Served) -> Any:
        return [(await ask(gate)).status_code for _ in range(2)], gate.close()

    statuses, episode = served(work, answer=answer)
    assert statuses == [503, 200]
    assert episode.turns[0].credit.failure == Failed("no memory left", "sampler")
    assert episode.failure is None


def test_dead_engines_end_the_run() -> None:
    async def work(gate: Served) -> Any:
        async def die(request: Any) -> Any:
            raise ClusterError("the engine died 4 times")

        gate.sampler.sample = die  # type: ignore[method-assign]
        return (await ask(gate)).status_code, gate.session.fatal

    status, fatal = served(work)
    assert status == 503
    assert isinstance(fatal, ClusterError)


@pytest.mark.parametrize(("error", "status"), [(TypeError, 500), (RecursionError, 400)])
def test_a_call_that_fails_before_sampling_is_not_served(
    error: type[Exception], status: int
) -> None:
    async def work(gate: Served) -> Any:
        template, whole = gate.session.templates["planner"], gate.session.templates["planner"].whole

        def fail(*args: Any) -> Any:
            raise error("a broken template")

        template.whole = fail  # type: ignore[method-assign]
        broken = await ask(gate)
        template.whole = whole  # type: ignore[method-assign]
        return [broken.status_code, (await ask(gate)).status_code], gate.close()

    statuses, episode = served(work)
    assert statuses == [status, 200]
    assert episode.failure is None


def test_calls_in_progress_fail_the_episode() -> None:
    async def work(gate: Served) -> Any:
        await ask(gate)
        go = hold(gate)
        late = asyncio.create_task(ask(gate))
        await until(lambda: gate.session.num_served == 2)
        episode = gate.close()
        go.set()
        return (await late).status_code, episode

    status, episode = served(work)
    assert status == 401
    assert len(episode.turns) == 1
    assert episode.failure is not None
    assert "2 calls were served and 1 recorded" in episode.failure.reason


@pytest.mark.slow
def test_a_thousand_episodes_at_once() -> None:
    """In one process, two calls each, with separate records."""

    async def work(gate: Served) -> Any:
        others = [gate.another(f"t/{number}") for number in range(1000)]
        limits = httpx.Limits(max_connections=100)

        async def play(http: Any, one: Served, number: int) -> None:
            headers = {"authorization": f"Bearer {one.agents.key}"}
            for _ in range(2):
                body = {**CHAT, "messages": [{"role": "user", "content": str(number)}]}
                answer = await http.post(gate.gateway.url + PATH, json=body, headers=headers)
                assert answer.status_code == 200

        async with httpx.AsyncClient(limits=limits, timeout=600) as http:
            await asyncio.gather(*(play(http, one, n) for n, one in enumerate(others)))
        return [one.close() for one in others]

    episodes = served(work)
    for number, episode in enumerate(episodes):
        assert [turn.messages[0].content for turn in episode.turns] == [str(number)] * 2
        assert episode.failure is None


def test_a_gateway_whose_machine_falls_silent_is_noticed() -> None:
    """Without probes of the connection, the call would wait until the client gives up."""
    if why := why_impossible():
        pytest.skip(why)
    helpers = os.pathsep.join(sys.path)
    found = subprocess.run(
        inside(str(HERE / "silent_gateway.py")),
        env={**os.environ, "PYTHONPATH": helpers},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    seconds = re.fullmatch(r"answer 503 after (.*) s\n", found.stdout)
    assert seconds, found.stdout
    assert float(seconds[1]) < 10
