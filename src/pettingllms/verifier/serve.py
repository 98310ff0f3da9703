"""Serve a verifier over HTTP on loopback, protected by a key.

Requests that arrive while the model is busy are batched into its next forward pass. The server logs
no keys, prompts or answers.
"""

import asyncio
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from pettingllms.errors import PettingError
from pettingllms.gateway.calls import load_json
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
    """Limits of the server."""

    body_bytes: int = 1 << 20
    """Maximum size of a request."""
    body_seconds: float = 30.0
    """Timeout for receiving a request."""
    waiting: int = 1024
    """Maximum queue length; further requests get status 503."""
    batch: int = 64
    """Answers per forward pass."""


class RejectedError(PettingError):
    """A request that is answered with an error status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class BatchQueue:
    """Queues requests and scores waiting ones in batches."""

    def __init__(self, score: Score, limits: Limits) -> None:
        self._score = score
        self._limits = limits
        self._waiting: list[tuple[Question, asyncio.Future[Reward]]] = []
        self._model = asyncio.Lock()

    async def score(self, question: Question) -> Reward:
        """The score of one answer."""
        if len(self._waiting) >= self._limits.waiting:
            raise RejectedError(503, "too many requests are waiting; retry later")
        verdict: asyncio.Future[Reward] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, verdict))
        while not verdict.done():
            async with self._model:
                if not verdict.done():
                    await self._score_batch()
        return verdict.result()

    async def _score_batch(self) -> None:
        """Score the oldest waiting requests; if that raises, each of them fails."""
        some = self._waiting[: self._limits.batch]
        del self._waiting[: self._limits.batch]
        try:
            found = await asyncio.to_thread(self._score, [question for question, _ in some])
            for (_, verdict), reward in zip(some, found, strict=True):
                verdict.set_result(reward)
        finally:
            for _, verdict in some:
                if not verdict.done():
                    verdict.set_exception(RejectedError(500, "the verifier failed on this batch"))
                    verdict.exception()  # mark as retrieved: the client may be gone


def make_app(score: Score, key: str, limits: Limits | None = None) -> "Starlette":
    """The server: POST /score with messages and an answer returns a score from 0 to 1."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    limits = limits or Limits()
    queue = BatchQueue(score, limits)

    async def scored(request: "Request") -> "Response":
        check_key(request.headers.get("Authorization", ""), key)
        reward = await queue.score(parse(await _body(request, limits)))
        match reward:
            case Scored(value):
                return JSONResponse({"score": value})
            case Failed(reason, _):
                raise RejectedError(422, f"no score: {reason}")

    async def health(request: "Request") -> "Response":
        check_key(request.headers.get("Authorization", ""), key)
        return JSONResponse({"ready": True})

    async def rejected(_: "Request", error: Exception) -> "Response":
        assert isinstance(error, RejectedError)  # noqa: S101 - registered for RejectedError only
        return JSONResponse({"error": str(error)}, status_code=error.status)

    routes = [Route("/score", scored, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, exception_handlers={RejectedError: rejected})


def check_key(header: str, key: str) -> None:
    """Reject requests without the key, with a constant-time comparison."""
    assert key  # noqa: S101 - the caller always sets a key
    wanted = f"Bearer {key}".encode()
    if not hmac.compare_digest(header.encode(errors="surrogateescape"), wanted):
        raise RejectedError(401, "the key is missing or wrong")


async def _body(request: "Request", limits: Limits) -> bytes:
    """The body of a request, within the limits of size and time."""
    found = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                found += part
                if len(found) > limits.body_bytes:
                    raise RejectedError(413, f"more than {limits.body_bytes} bytes")
    except TimeoutError:
        raise RejectedError(408, f"not received within {limits.body_seconds:g} s") from None
    return bytes(found)


def parse(body: bytes) -> Question:
    """Parse messages and an answer; errors never echo the request."""
    try:
        data: Any = load_json(body.decode())
        messages = tuple(_message(message) for message in data["messages"])
        answer = data["answer"]
    except (AttributeError, LookupError, TypeError, ValueError):
        messages, answer = (), None
    if not messages or not isinstance(answer, str):
        raise RejectedError(
            400,
            'send {"messages": [{"role": "user", "content": "..."}], "answer": "..."} as JSON; '
            f"roles: {', '.join(get_args(Speaker))}",
        )
    return messages, answer


def _message(data: Any) -> Message:
    if data["role"] not in get_args(Speaker) or not isinstance(data["content"], str):
        raise ValueError("not a message")
    return Message(data["role"], data["content"])


def serve(score: Score, key: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until the process is stopped. Port 0 picks a free port; `ready` receives it."""
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
