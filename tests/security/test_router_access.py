"""The router grants nothing, and no request can contain another one (request smuggling)."""

import asyncio
import json
import re
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from routers import KEY, Routed, head, in_front_of, response_of, routed

CHAT = {"model": "planner", "messages": [{"role": "user", "content": "hi"}]}
HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + KEY.encode() + b"\r\n\r\n"
LENGTH = f"content-length: {len(HIDDEN)}"
SMUGGLED = {
    "length and chunks": (head(LENGTH, "transfer-encoding: chunked"), b"0\r\n\r\n" + HIDDEN),
    "chunks and length": (head("transfer-encoding: chunked", LENGTH), b"0\r\n\r\n" + HIDDEN),
    "two lengths": (head("content-length: 0", LENGTH), HIDDEN),
    "equal lengths": (head(LENGTH, LENGTH), HIDDEN),
    "a list of lengths": (head(f"content-length: 0, {len(HIDDEN)}"), HIDDEN),
    "a signed length": (head(f"content-length: +{len(HIDDEN)}"), HIDDEN),
    "two codings": (head("transfer-encoding: identity, chunked"), b"0\r\n\r\n" + HIDDEN),
    "two coding headers": (
        head("transfer-encoding: chunked", "transfer-encoding: identity"),
        b"0\r\n\r\n" + HIDDEN,
    ),
    "an unknown coding": (head("transfer-encoding: xchunked"), b"0\r\n\r\n" + HIDDEN),
    "a disguised coding": (head(LENGTH, "transfer-encoding : chunked"), b"0\r\n\r\n" + HIDDEN),
    "a folded coding": (head(LENGTH, "transfer-encoding:\r\n chunked"), b"0\r\n\r\n" + HIDDEN),
    "a folded header": (head(LENGTH, "x-a: b\r\n transfer-encoding: chunked"), HIDDEN),
    "a bare line feed": (head(LENGTH, "x-a: b\ntransfer-encoding: chunked"), b"0\r\n\r\n" + HIDDEN),
    "a bare return": (head(LENGTH, "x-a: b\rtransfer-encoding: chunked"), b"0\r\n\r\n" + HIDDEN),
    "a null byte": (head(LENGTH, "x-a: b\0c"), HIDDEN),
    "a chunk extension": (
        head("transfer-encoding: chunked"),
        b"0;a=\n\r\n\r\n" + HIDDEN,
    ),
    "a large chunk": (head("transfer-encoding: chunked"), b"f" * 40 + b"\r\n" + HIDDEN),
    "a version": (head().replace(b"HTTP/1.1", b"HTTP/1.1 x"), HIDDEN),
    "a URL": (head(path="/v1/a HTTP/1.1\thost:y"), HIDDEN),
}


class Replica:
    """A server that keeps all bytes of each connection, and answers every head on it."""

    def __init__(self) -> None:
        self.received: list[bytearray] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = bytearray()
        self.received.append(own)
        while part := await reader.read(65_536):
            own += part
            if b"\r\n\r\n" in own:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What arrives until the connection is closed, or nothing more for a while."""
    found = b""
    try:
        while part := await asyncio.wait_for(reader.read(65_536), 1.0):
            found += part
    except (TimeoutError, ConnectionError):
        pass
    return found


def sent_on(data: bytes) -> tuple[list[bytes], list[int]]:
    """What the replica received on each connection, and the statuses that the client got."""
    replica = Replica()

    async def work(given: Routed) -> list[int]:
        reader, writer = await given.connect()
        writer.write(data)
        found = await everything(reader)
        return [int(one) for one in re.findall(rb"HTTP/1\.1 (\d+)", found)]

    statuses = in_front_of(replica.serve, work)
    return [bytes(one) for one in replica.received], statuses


@pytest.mark.parametrize("kind", SMUGGLED)
def test_no_request_hides_in_another(kind: str) -> None:
    """Where the length of a body is doubtful, the request is rejected, or its connection is closed
    if its body has begun. What the gateway got until then is at most one request."""
    first, rest = SMUGGLED[kind]
    received, statuses = sent_on(first + rest)
    for one in received:
        begin, _, body = one.partition(b"\r\n\r\n")
        names = [line.partition(b":")[0] for line in begin.split(b"\r\n")[1:]]
        assert sum(name in (b"content-length", b"transfer-encoding") for name in names) <= 1
        assert b"\n" not in begin.replace(b"\r\n", b"")
        if not one.startswith(b"GET /hidden"):
            declared = re.search(rb"content-length: (\d+)$", begin, re.MULTILINE)
            assert len(body) <= (int(declared[1]) if declared else 5)
    assert statuses in ([400], [])


def test_requests_in_one_packet_get_separate_connections() -> None:
    body = b'{"a": 1}'
    received, statuses = sent_on(head(f"content-length: {len(body)}") + body + HIDDEN)
    assert statuses == [200, 200]
    assert [one.split(b" ")[1] for one in received] == [b"/v1/chat/completions", b"/hidden"]
    assert received[0].endswith(b"\r\n\r\n" + body)


def test_headers_of_the_connection_are_not_forwarded() -> None:
    lines = ("connection: keep-alive, x-a", "keep-alive: 5", "te: trailers", "upgrade: h2c")
    (received,), statuses = sent_on(head(*lines, "x-pettingllms-role: a", "content-length: 0"))
    assert statuses == [200]
    names = re.findall(rb"^([a-z-]+):", received, re.MULTILINE)
    assert names == [b"host", b"authorization", b"x-pettingllms-role", b"content-length"]


async def _statuses(given: Routed, headers: list[dict[str, str] | list[Any]]) -> list[int]:
    async with httpx.AsyncClient(timeout=20) as http:
        url = given.router.url + "/v1/chat/completions"
        found = [await http.post(url, json=CHAT, headers=some) for some in headers]
    for response in found:
        assert KEY[5:] not in response.text, "a response repeats the key"
        assert response.status_code == 200 or response.json()["error"]["message"]
    return [response.status_code for response in found]


def test_a_forged_tag_grants_nothing() -> None:
    async def work(given: Routed) -> None:
        own, other = (one.agents.key for one in given.served)
        assert own.startswith("pl-0-")
        assert other.startswith("pl-1-")
        moved = f"pl-1-{own[5:]}"
        for key in (KEY, moved, own[:-1], own + "x", own[5:], "pl-9-" + own[5:], "pl-" + own[5:],
                    "pl--" + own[5:], "pl-../-" + own[5:], "x" * 10_000, ""):  # fmt: skip
            assert await _statuses(given, [{"x-api-key": key}]) == [401], key
        assert all(not one.sampler.requests for one in given.served)
        assert await _statuses(given, [{"x-api-key": own}, {}]) == [200, 401]

    routed(work)


def test_several_keys_must_be_the_same() -> None:
    async def work(given: Routed) -> None:
        own, other = (one.agents.key for one in given.served)
        role = given.served[0].agents.keys["planner"]
        bearer = f"Bearer {own}"
        assert await _statuses(given, [
            [("x-api-key", own), ("x-api-key", own), ("authorization", bearer)],
            [("x-api-key", other), ("authorization", bearer)],
            [("x-api-key", own), ("x-api-key", other)],
            [("x-api-key", role), ("authorization", bearer)],
            [("x-api-key", own), ("x-api-key", KEY)],
            [("authorization", f"Basic {own}")],
        ]) == [200, 401, 401, 401, 401, 401]  # fmt: skip

    routed(work)


def test_a_rejected_body_is_not_kept_and_the_connection_stays() -> None:
    async def work(given: Routed) -> None:
        reader, writer = await given.connect()
        body = b"z" * 3_000_000
        writer.write(head(f"content-length: {len(body)}").replace(KEY.encode(), b"none") + body)
        assert (await response_of(reader))[0] == 401
        sent = json.dumps(CHAT).encode()
        key = given.served[1].agents.key.encode()
        writer.write(head(f"content-length: {len(sent)}").replace(KEY.encode(), key) + sent)
        assert (await response_of(reader))[0] == 200

    routed(work)
