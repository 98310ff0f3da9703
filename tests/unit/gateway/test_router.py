"""One address for several gateways: requests reach the gateway of their key, in both directions
piece by piece."""

import asyncio
import errno
import json
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from gateways import Served, served
from routers import KEY, Routed, head, in_front_of, response_of, routed

from pettingllms.gateway.forwarding import ReplicaError, Response, _download
from pettingllms.gateway.session import UNDELIVERED
from pettingllms.types import SampleRequest, episode_line

PATH = "/v1/chat/completions"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
SECONDS = 20


def chat(text: str, role: str = "planner", **more: Any) -> dict[str, Any]:
    return {"model": role, "messages": [{"role": "user", "content": text}], **more}


def echo(request: SampleRequest, number: int) -> str:
    return f"{bytes(request.prompt_ids.tolist()).decode()[-40:]!r} {request.seed}"


async def ask(http: Any, gate: Served, text: str, **more: Any) -> Any:
    url, key = gate.agents.url + PATH, gate.agents.key
    return await http.post(url, json=chat(text, **more), headers={"x-api-key": key})


def test_one_connection_carries_the_keys_of_several_gateways() -> None:
    async def work(given: Routed) -> None:
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(limits=limits, timeout=SECONDS) as http:
            for at in (0, 1, 1, 0, 1):
                gate = given.served[at]
                assert gate.agents.url == given.router.url
                found = await ask(http, gate, f"for {at}")
                assert found.status_code == 200, found.text
        for at, number in ((0, 2), (1, 3)):
            episode = given.served[at].close()
            assert [turn.messages[0].content for turn in episode.turns] == [f"for {at}"] * number
            assert (len(episode.steps), episode.failure) == (number, None)

    routed(work)


def test_records_are_those_of_direct_calls() -> None:
    async def program(gate: Served) -> None:
        client = gate.openai()
        said = chat("first")
        reply = (await client.chat.completions.create(**said)).choices[0].message.content
        said["messages"] += [
            {"role": "assistant", "content": reply},
            {"role": "user", "content": "ü" * 50_000},
        ]
        await client.chat.completions.create(**said)
        parts = await client.chat.completions.create(**chat("streamed", "worker", stream=True))
        assert "".join([part.choices[0].delta.content or "" async for part in parts])

    async def direct(gate: Served) -> str:
        await program(gate)
        return episode_line(gate.close())

    async def over_router(given: Routed) -> str:
        await program(given.served[0])
        return episode_line(given.served[0].close())

    pytest.importorskip("openai")
    expected = served(direct, echo).replace("planner_policy", "planner")
    assert routed(over_router, echo) == expected.replace("worker_policy", "worker").replace(
        "program-v1", "e"
    )


@pytest.mark.parametrize("coding", ["content-length: 48000000", "transfer-encoding: chunked"])
def test_a_body_is_forwarded_in_pieces(coding: str) -> None:
    """The gateway reads nothing at first, so a router that keeps bodies would take everything."""
    sent, begin, bodies = b"z" * 48_000_000, asyncio.Event(), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert coding in lines
        await begin.wait()
        if "chunked" in coding:
            parts = []
            while size := int(await reader.readline(), 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
            body = b"".join(parts)
        else:
            body = await reader.readexactly(len(sent))
        bodies.append(body)
        writer.write(OK)

    async def work(given: Routed) -> None:
        reader, writer = await given.connect()
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(head(coding))
        pieces = [sent[at : at + 1_000_000] for at in range(0, len(sent), 1_000_000)]
        taken = 0

        async def send() -> None:
            nonlocal taken
            for piece in pieces:
                chunked = b"%x\r\n%s\r\n" % (len(piece), piece)
                writer.write(chunked if "chunked" in coding else piece)
                await writer.drain()
                taken += 1
            writer.write(b"0\r\n\r\n" if "chunked" in coding else b"")

        sending = asyncio.create_task(send())
        await asyncio.sleep(1)
        assert taken < len(pieces), "the router reads on although the gateway does not"
        begin.set()
        assert (await response_of(reader))[0] == 200
        await sending

    in_front_of(serve, work)
    assert [len(body) for body in bodies] == [len(sent)]
    assert bodies[0] == sent


def test_a_response_is_forwarded_as_it_arrives() -> None:
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\none \r\n\r\n")
        await go.wait()
        writer.write(b"4\r\ntwo\n\r\n0\r\n\r\n")

    async def work(given: Routed) -> None:
        reader, writer = await given.connect()
        writer.write(head("content-length: 0"))
        assert b"transfer-encoding: chunked" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(11) == b"6\r\none \r\n\r\n"
        go.set()
        assert await reader.readexactly(14) == b"4\r\ntwo\n\r\n0\r\n\r\n"
        writer.write(head("content-length: 0"))
        assert b"one" in await reader.readuntil(b"0\r\n\r\n"), "the connection stays open"

    in_front_of(serve, work)


def test_a_client_that_reads_nothing_stops_the_gateway() -> None:
    written, ended = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 900000000\r\n\r\n")
        try:
            while True:
                writer.write(b"z" * 100_000)
                await writer.drain()
                written += 100_000
        except ConnectionError:
            ended.set()

    async def work(given: Routed) -> int:
        _, writer = await given.connect()
        writer.write(head("content-length: 0"))
        await asyncio.sleep(1)
        first = written
        await asyncio.sleep(0.5)
        assert written == first < 40_000_000
        writer.transport.abort()
        await asyncio.wait_for(ended.wait(), SECONDS)
        return first

    assert in_front_of(serve, work) > 0


def test_a_gateway_that_is_gone_gives_503() -> None:
    async def work(given: Routed) -> None:
        async with httpx.AsyncClient(timeout=SECONDS) as http:
            await given.served[1].gateway.stop()
            found = await ask(http, given.served[1], "x")
            assert found.status_code == 503
            assert "the gateway of this key does not answer" in found.json()["error"]["message"]
            url, key = given.router.url + "/v1/messages", given.served[1].agents.key
            found = await http.post(url, json={}, headers={"x-api-key": key})
            assert (found.status_code, found.json()["type"]) == (503, "error")
            assert (await ask(http, given.served[0], "x")).status_code == 200

    routed(work)


@pytest.mark.parametrize("begun", ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
def test_a_gateway_that_dies_is_not_a_complete_response(begun: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begun.encode())
        await writer.drain()
        writer.close()

    async def work(given: Routed) -> bytes:
        reader, writer = await given.connect()
        writer.write(head("content-length: 0"))
        if not begun:
            return str((await response_of(reader))[0]).encode()
        return await reader.read()

    found = in_front_of(serve, work)
    assert found == b"503" or found.endswith(b"\r\n\r\nhalf")


def test_a_machine_that_vanished_is_a_gateway_that_does_not_answer() -> None:
    class Vanished:
        async def read(self, _: int) -> bytes:
            raise OSError(errno.EHOSTUNREACH, "No route to host")

    async def send(_: Any) -> None: ...

    reader: Any = Vanished()
    with pytest.raises(ReplicaError, match="No route to host"):
        asyncio.run(_download(reader, send, Response("POST")))


def test_a_reply_to_a_client_that_left_is_not_delivered() -> None:
    async def work(given: Routed) -> Any:
        gate, go = given.served[0], asyncio.Event()
        answer = gate.sampler.sample

        async def wait(request: Any) -> Any:
            await go.wait()
            return await answer(request)

        gate.sampler.sample = wait  # type: ignore[method-assign]
        body = json.dumps(chat("hi")).encode()
        _, writer = await given.connect()
        writer.write(head(f"content-length: {len(body)}").replace(KEY.encode(), _key(gate)) + body)
        await _until(lambda: gate.session.num_served == 1)
        writer.transport.abort()
        await asyncio.sleep(0.2)
        go.set()
        await _until(lambda: gate.session.num_recorded == 1)
        return gate.close().turns[0].credit.failure

    assert routed(work) == UNDELIVERED


def test_an_early_rejection_arrives_and_the_connection_stays() -> None:
    """The gateway answers 413 to the length of a body, before the router has forwarded it."""

    async def work(given: Routed) -> None:
        gate = given.served[0]
        reader, writer = await given.connect()
        ask_ = head("content-length: 9000000").replace(KEY.encode(), _key(gate))
        writer.write(ask_)
        sending = asyncio.create_task(_send(writer, b"z" * 9_000_000))
        assert (await response_of(reader))[0] == 413
        await sending
        body = json.dumps(chat("hi")).encode()
        ask_ = head(f"content-length: {len(body)}", "expect: 100-continue")
        writer.write(ask_.replace(KEY.encode(), _key(gate)))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await response_of(reader))[0] == 200
        writer.write(head(method="HEAD", path="/v1/models").replace(KEY.encode(), _key(gate)))
        line, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        assert line == b"HTTP/1.1 200 OK"
        writer.write(head(method="GET", path="/v1/models?x=1").replace(KEY.encode(), _key(gate)))
        assert [one["id"] for one in json.loads((await response_of(reader))[2])["data"]] == [
            "planner",
            "worker",
        ]

    routed(work)


def _key(gate: Served) -> bytes:
    return gate.agents.key.encode()


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def _until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
