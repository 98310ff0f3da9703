"""The processes of the gateway's benchmark: gateways with an engine that waits, and clients."""

import asyncio
import json
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import httptools

from pettingllms.gateway.forwarding import Response
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.router import Router
from pettingllms.gateway.session import Session
from pettingllms.rollouts.player import Player
from pettingllms.rollouts.scripted import ByteRenderer, text_ids
from pettingllms.types import Episode, Sample, SampleRequest, Task, episode_line

MARK = re.compile(r"\bsession-\d+\b")
ROLE = "agent"
SPARE_SECONDS = 120.0
"""Time that a round may take beyond the delays of its calls."""


@dataclass(frozen=True, slots=True)
class Client:
    """What the client of a session is given."""

    mark: str
    """Name of the session, which all of its messages contain."""
    url: str
    key: str


@dataclass(frozen=True, slots=True)
class Records:
    """What a gateway recorded."""

    num_turns: int
    """Turns that their clients received."""
    num_mixed: int
    """Turns with the mark of another session."""
    digests: dict[str, str]
    """A hash of each session's episode, by its mark."""
    most_in_flight: int
    cpu_seconds: float
    """CPU time of the process while clients ran."""


@dataclass(frozen=True, slots=True)
class Received:
    """What the clients of one process received."""

    seconds: list[float]
    """Time of each call."""
    num_mixed: int
    """Replies with the mark of another session."""
    errors: dict[str, int]
    """Calls that failed, by message."""


class WaitingSampler:
    """Replies with the name of the request's session after a delay."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._num_in_flight = self.most_in_flight = 0

    async def sample(self, request: SampleRequest) -> list[Sample]:
        """One reply. Its session names it, not its prompt, so that a mixed request is seen."""
        self._num_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._num_in_flight)
        await asyncio.sleep(self._delay)
        self._num_in_flight -= 1
        ids = text_ids(f"{request.task_id} says {request.seed}")
        return [Sample(ids, (ids / -256).astype("float32"), 0, "stop")]


def run_gateway(
    pipe: Connection, tag: str, marks: Sequence[str], delay: float, shared_url: str
) -> None:
    """A process with a gateway: sends the clients of its sessions, then, asked, its records."""
    _allow_connections()
    asyncio.run(_run_gateway(pipe, tag, marks, delay, shared_url))


async def _run_gateway(
    pipe: Connection, tag: str, marks: Sequence[str], delay: float, shared_url: str
) -> None:
    sampler = WaitingSampler(delay)
    player = Player("policy", sampler, ByteRenderer())
    gateway = await Gateway.start(lambda _: None, tag=tag, shared_url=shared_url)
    sessions = [
        gateway.open(Episode(mark, "bench", Task(mark), at), {ROLE: player}, at)
        for at, mark in enumerate(marks)
    ]
    clients = []
    for session in sessions:
        agents = gateway.agents(session)
        clients.append(Client(session.episode.id, agents.url, agents.key))
    before = time.process_time()
    pipe.send((gateway.url, clients))
    await asyncio.to_thread(pipe.recv)
    used = time.process_time() - before
    for session in sessions:
        gateway.close(session)
    pipe.send(records_of(sessions, sampler.most_in_flight, used))
    await gateway.stop()


def records_of(sessions: Sequence[Session], most_in_flight: int, cpu_seconds: float) -> Records:
    """What the closed sessions of a gateway recorded."""
    episodes = [session.episode for session in sessions]
    received = [(episode, turn) for episode in episodes for turn in episode.turns
                if turn.credit.failure is None]  # fmt: skip
    num_mixed = 0
    for episode, turn in received:
        texts = [message.text for message in turn.messages] + [turn.text]
        num_mixed += any(set(MARK.findall(text)) != {episode.id} for text in texts)
    digests = {one.id: sha256(episode_line(one).encode()).hexdigest() for one in episodes}
    return Records(len(received), num_mixed, digests, most_in_flight, cpu_seconds)


def run_router(pipe: Connection, host: str) -> None:
    """A process with a router: sends its URL, then takes tags and URLs of gateways, and
    answers with its CPU time."""
    _allow_connections()
    router = Router()
    router.start(host, 0)
    pipe.send(router.url)
    while (given := pipe.recv()) is not None:
        for tag, url in given:
            router.add(tag, url)
        pipe.send(time.process_time())
    router.stop()


def run_clients(pipe: Connection, delay: float) -> None:
    """A process with clients: takes them and the number of calls of each, sends what they got."""
    _allow_connections()
    pipe.send(None)  # it has imported everything
    while (given := pipe.recv()) is not None:
        clients, num_calls = given
        pipe.send(asyncio.run(_run_clients(clients, num_calls, delay)))


async def _run_clients(clients: Sequence[Client], num_calls: int, delay: float) -> Received:
    seconds: list[float] = []
    errors: Counter[str] = Counter()
    mixed: Counter[str] = Counter()

    async def run(client: Client) -> None:
        rng = random.Random(client.mark)
        await asyncio.sleep(rng.random() * delay)  # calls arrive evenly
        try:
            async with asyncio.timeout(SPARE_SECONDS + delay * num_calls):
                await _talk(client, num_calls, seconds, mixed)
        except (OSError, EOFError, RuntimeError) as error:  # also TimeoutError
            errors[f"{type(error).__name__}: {error}"[:200]] += 1

    await asyncio.gather(*(run(client) for client in clients))
    return Received(seconds, mixed.total(), dict(errors))


async def _talk(client: Client, num_calls: int, seconds: list[float], mixed: Counter[str]) -> None:
    """One session: a chat over one connection, in which every second reply is streamed."""
    parts = urlsplit(client.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    chat: list[dict[str, str]] = []
    try:
        for number in range(num_calls):
            chat.append({"role": "user", "content": f"{client.mark} asks {number} " + "x" * 500})
            is_streamed = number % 2 == 1
            body = json.dumps({"model": ROLE, "messages": chat, "stream": is_streamed}).encode()
            start = time.perf_counter()
            writer.write(_head(client.key, len(body)) + body)
            answer = await _response(reader)
            seconds.append(time.perf_counter() - start)
            said = _streamed(answer) if is_streamed else _whole(answer)
            mixed[client.mark] += set(MARK.findall(said)) != {client.mark}
            chat.append({"role": "assistant", "content": said})
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _head(key: str, num_bytes: int) -> bytes:
    lines = ("POST /v1/chat/completions HTTP/1.1", "host: bench", f"authorization: Bearer {key}",
             f"content-length: {num_bytes}")  # fmt: skip
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _response(reader: asyncio.StreamReader) -> bytes:
    response = Response("POST")
    parser = httptools.HttpResponseParser(response)
    while not response.is_complete:
        data = await reader.read(65_536)
        if not data:
            raise EOFError("the connection was closed before the end of a response")
        parser.feed_data(data)
    body = b"".join(response.pieces)
    if parser.get_status_code() != 200:
        raise RuntimeError(f"status {parser.get_status_code()}: {body[:200]!r}")
    return body


def _whole(body: bytes) -> str:
    text: Any = json.loads(body)["choices"][0]["message"]["content"]
    return str(text)


def _streamed(body: bytes) -> str:
    events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def _allow_connections() -> None:
    """Raise the limit on open files to what this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
