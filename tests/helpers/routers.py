"""A router in front of gateways, or of sockets that a test steers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from gateways import Served, say_hello
from toys import AnsweringSampler

from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.router import Router
from pettingllms.rollouts.player import Player
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import Episode, Task

ResultT = TypeVar("ResultT")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
KEY = "pl-0-" + "x" * 43
"""A key with the tag of the first gateway, which no gateway has issued."""


class Routed:
    """A router and the open episodes behind it, one per gateway."""

    def __init__(self, router: Router, served: list[Served]) -> None:
        self.router = router
        self.served = served
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Streams:
        host, port = self.router.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self._writers.append(writer)
        return reader, writer

    async def leave(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for served in self.served:
            await served.leave()


def routed(
    work: Callable[[Routed], Awaitable[ResultT]], answer: Any = say_hello, number: int = 2
) -> ResultT:
    """What the work comes to, with a router and gateways while it lasts."""

    async def run() -> ResultT:
        router = Router()
        router.start("127.0.0.1", 0)
        gateways, found = [], []
        for at in range(number):
            gateway = await Gateway.start(lambda _: None, tag=str(at), shared_url=router.url)
            gateways.append(gateway)
            router.add(str(at), gateway.url)
            sampler = AnsweringSampler(answer)
            players = {
                role: Player(role, sampler, ByteRenderer()) for role in ("planner", "worker")
            }
            session = gateway.open(Episode(f"t/{at}", "e", Task("t"), 0), players, 1)
            found.append(Served(gateway, session, sampler))
        given = Routed(router, found)
        try:
            return await work(given)
        finally:
            await given.leave()
            await asyncio.to_thread(router.stop)
            for gateway in gateways:
                await gateway.stop()

    return asyncio.run(run())


def in_front_of(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    work: Callable[[Routed], Awaitable[ResultT]],
) -> ResultT:
    """The same with one server that a test steers instead of gateways; `KEY` leads to it."""

    writers = []

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve(reader, writer)

    async def run() -> ResultT:
        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        router = Router()
        router.start("127.0.0.1", 0)
        router.add("0", "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname()))
        given = Routed(router, [])
        try:
            return await work(given)
        finally:
            await given.leave()
            await asyncio.to_thread(router.stop)
            server.close()
            for writer in writers:
                writer.transport.abort()
            await asyncio.sleep(0)

    return asyncio.run(run())


def head(*lines: str, method: str = "POST", path: str = "/v1/chat/completions") -> bytes:
    """The head of a request with `KEY`."""
    given = (f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {KEY}", *lines)
    return ("\r\n".join(given) + "\r\n\r\n").encode()


async def response_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next response, which has a content-length."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
    headers = dict(line.lower().split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(first.split()[1]), headers, body
