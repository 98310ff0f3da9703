"""A verifier on a port of this machine: scores for those who know the key.

Requests that come while the model is busy are read together in its next pass. Nothing that is sent
here is written anywhere, neither the key nor a prompt nor an answer.
"""

import asyncio
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from pettingllms.errors import PettingError
from pettingllms.gateway.calls import read_text
from pettingllms.types import Failed, Message, Reward, Scored
from pettingllms.types.messages import Speaker
from pettingllms.verifier.classifier import Question

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = "127.0.0.1"
Score = Callable[[Sequence[Question]], list[Reward]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server takes."""

    body_bytes: int = 1 << 20
    """Of one request."""
    body_seconds: float = 30.0
    """Until a request is there whole."""
    waiting: int = 1024
    """Requests at once; more are sent away, to come again."""
    batch: int = 64
    """Answers that are read in one go."""


class RefusedError(PettingError):
    """A request that gets no score."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Desk:
    """Where requests wait for the model, which reads those that are there together."""

    def __init__(self, score: Score, limits: Limits) -> None:
        self._score = score
        self._limits = limits
        self._waiting: list[tuple[Question, asyncio.Future[Reward]]] = []
        self._model = asyncio.Lock()

    async def ask(self, question: Question) -> Reward:
        """The score of one answer."""
        if len(self._waiting) >= self._limits.waiting:
            raise RefusedError(503, "too many answers are waiting; ask again later")
        verdict: asyncio.Future[Reward] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, verdict))
        while not verdict.done():
            async with self._model:
                if not verdict.done():
                    await self._read_some()
        return verdict.result()

    async def _read_some(self) -> None:
        """One pass over those that have waited longest. If it breaks, each of them is told so."""
        some = self._waiting[: self._limits.batch]
        del self._waiting[: self._limits.batch]
        try:
            found = await asyncio.to_thread(self._score, [question for question, _ in some])
            for (_, verdict), reward in zip(some, found, strict=True):
                verdict.set_result(reward)
        finally:
            for _, verdict in some:
                if not verdict.done():
                    verdict.set_exception(RefusedError(500, "the verifier broke on this batch"))
                    verdict.exception()  # that nobody may be left to hear it is no mistake


def make_app(score: Score, key: str, limits: Limits | None = None) -> "Starlette":
    """The server: POST /score with messages and an answer gives a score from 0 to 1."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    limits = limits or Limits()
    desk = Desk(score, limits)

    async def scored(request: "Request") -> "Response":
        check_key(request.headers.get("Authorization", ""), key)
        reward = await desk.ask(parse(await _body(request, limits)))
        match reward:
            case Scored(value):
                return JSONResponse({"score": value})
            case Failed(reason, _):
                raise RefusedError(422, f"no score: {reason}")

    async def health(request: "Request") -> "Response":
        check_key(request.headers.get("Authorization", ""), key)
        return JSONResponse({"ready": True})

    async def refused(_: "Request", error: Exception) -> "Response":
        assert isinstance(error, RefusedError)  # noqa: S101 - it is registered for those alone
        return JSONResponse({"error": str(error)}, status_code=error.status)

    routes = [Route("/score", scored, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, exception_handlers={RefusedError: refused})


def check_key(header: str, key: str) -> None:
    """Refuse whoever does not know the key, in a time that says nothing about it."""
    assert key  # noqa: S101 - a server without one is never made
    wanted = f"Bearer {key}".encode()
    if not hmac.compare_digest(header.encode(errors="surrogateescape"), wanted):
        raise RefusedError(401, "the key is missing or wrong")


async def _body(request: "Request", limits: Limits) -> bytes:
    """All of a request, as long as it is neither too large nor too slow."""
    found = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                found += part
                if len(found) > limits.body_bytes:
                    raise RefusedError(413, f"more than {limits.body_bytes} bytes")
    except TimeoutError:
        raise RefusedError(408, f"not there within {limits.body_seconds:g} s") from None
    return bytes(found)


def parse(body: bytes) -> Question:
    """Messages and an answer; nothing of what was sent is repeated in a refusal."""
    try:
        data: Any = read_text(body.decode())
        messages = tuple(_message(message) for message in data["messages"])
        answer = data["answer"]
    except (AttributeError, LookupError, TypeError, ValueError):
        messages, answer = (), None
    if not messages or not isinstance(answer, str):
        raise RefusedError(
            400,
            'send {"messages": [{"role": "user", "content": "..."}], "answer": "..."} as JSON; '
            f"roles: {', '.join(get_args(Speaker))}",
        )
    return messages, answer


def _message(data: Any) -> Message:
    if data["role"] not in get_args(Speaker) or not isinstance(data["content"], str):
        raise ValueError("no message")
    return Message(data["role"], data["content"])


def serve(score: Score, key: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until somebody stops the process. Port 0 takes a free one; `ready` is told which."""
    import socket

    import uvicorn

    from pettingllms.gateway.http_headers import BoundedHttp

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        ready(listening.getsockname()[1])
        config = uvicorn.Config(
            make_app(score, key),
            access_log=False,
            log_level="error",
            server_header=False,
            http=BoundedHttp,
        )
        uvicorn.Server(config).run(sockets=[listening])
