"""The client of one model's engines: routes requests, bounds them in flight, retries lost ones.

A reply is a function of the request's ids and seed, so a request that was lost with its engine is
sent again. The driver and every rollout worker have a client each. Only the driver's is the owner
(`Engines`), which restarts engines; the others ask it for the replacement of a dead engine.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray

from pettingllms.cluster import failures
from pettingllms.errors import EngineDiedError, NoAnswerError
from pettingllms.rollouts.routing import lockstep_parts, replica_of
from pettingllms.runtime.in_flight import InFlight, current_clock, pause_deadline, stalled
from pettingllms.types import Failed, Sample, SampleRequest

QUIET_TURNS = 5
"""Turns of the event loop without a new request after which a batch is sent."""
DEATHS = (*failures.DEATHS, EngineDiedError)
"""What a call raises whose engine died."""
Samples = Sequence[Sample | Failed]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue of a lockstep engine."""

    request: SampleRequest
    sent: asyncio.Future[None]
    answer: asyncio.Future[Samples]


@dataclass(frozen=True, slots=True)
class EngineLinks:
    """How a process reaches the engines of one model."""

    model: Path
    policies: tuple[str, ...]
    actors: tuple[tuple[Any, int], ...]
    """The actor of each replica, with its generation: the number of actors before it."""
    max_num_seqs: int
    lockstep: bool


class Queue:
    """Batches requests for an engine that decodes in lockstep.

    A call through Ray takes as long as a small model's reply, so concurrent requests are sent
    together: a batch takes all requests that arrived during the last one. It is sent in parts that
    the engine decodes together, and the timeout of a request starts when its part is sent.
    """

    def __init__(
        self,
        send: Callable[[list[SampleRequest]], Awaitable[list[Samples]]],
        max_replies: int = 64,
    ) -> None:
        self.max_replies = max_replies
        """Replies that the engine decodes together."""
        self._send = send
        self._waiting: list[Waiting] = []
        self._sender: asyncio.Task[None] | None = None

    async def sample(self, request: SampleRequest) -> Samples:
        """The replies to a request."""
        loop = asyncio.get_running_loop()
        waiting = Waiting(request, loop.create_future(), loop.create_future())
        self._waiting.append(waiting)
        if self._sender is None or self._sender.done():
            # In a separate context: it serves all requests, so none of their timeouts applies.
            self._sender = asyncio.create_task(self._send_all(), context=Context())
        clock = current_clock()
        try:
            with pause_deadline():
                await waiting.sent
            return await waiting.answer
        except asyncio.CancelledError:
            waiting.answer.cancel()
            if clock is not None and clock.expired():
                # A part is answered as a whole, so no request has had an answer since it was sent.
                self._give_up(stalled(clock.seconds))
            raise

    async def close(self) -> None:
        """Stop sending, and cancel waiting requests."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        for one in self._waiting:
            one.sent.cancel()
        self._waiting = []

    async def _send_all(self) -> None:
        while self._waiting:
            await self._wait_for_requests()
            batch = [one for one in self._waiting if not one.answer.done()]
            for part in lockstep_parts([one.request for one in batch], self.max_replies):
                await self._send_part([batch[at] for at in part if not batch[at].answer.done()])
            gone = {id(one) for one in batch}
            self._waiting = [
                one for one in self._waiting if id(one) not in gone and not one.answer.done()
            ]

    async def _send_part(self, part: Sequence[Waiting]) -> None:
        if not part:
            return
        for one in part:
            one.sent.set_result(None)
        sending = asyncio.ensure_future(self._send([one.request for one in part]))
        answers = asyncio.gather(*(one.answer for one in part), return_exceptions=True)
        either: list[asyncio.Future[Any]] = [sending, answers]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not sending.done():  # all requests were cancelled, or the queue is closed
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                answers.cancel()
        (results,) = await asyncio.gather(sending, return_exceptions=True)
        if isinstance(results, BaseException):  # all waiting requests get it
            for one in part:
                if not one.answer.done():
                    one.answer.set_exception(results)
            return
        for one, result in zip(part, results, strict=True):
            if not one.answer.done():
                one.answer.set_result(result)

    def _give_up(self, error: NoAnswerError) -> None:
        for one in self._waiting:
            if not one.sent.done():
                one.sent.set_exception(error)
                one.answer.cancel()

    async def _wait_for_requests(self) -> None:
        """Wait while episodes that were just answered make their next request."""
        quiet = 0
        while quiet < QUIET_TURNS:
            before = len(self._waiting)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == before else 0


class EngineClient(ABC):
    """A sampler over replicas; requests of one task go to the same replica."""

    def __init__(self, num_replicas: int, max_num_seqs: int, lockstep: bool) -> None:
        self._is_lockstep = lockstep
        self._in_flight = [InFlight(max_num_seqs) for _ in range(num_replicas)]
        self._queues = [
            Queue(partial(self._call, at, "sample_many"), max_num_seqs)
            for at in range(num_replicas)
        ]

    @abstractmethod
    def _actor(self, at: int) -> Any:
        """The actor that serves as a replica now."""

    @abstractmethod
    async def _replaced(self, at: int, error: Exception) -> None:
        """Wait until another actor serves as a replica whose actor died."""

    def bound(self, max_num_seqs: int) -> None:
        """Change the number of replies in flight per replica."""
        for in_flight, queue in zip(self._in_flight, self._queues, strict=True):
            in_flight.resize(max_num_seqs)
            queue.max_replies = max_num_seqs

    async def sample(self, request: SampleRequest) -> Samples:
        """Send a request to the replica of its task; retry if the replica dies."""
        at = replica_of(request.task_id, len(self._in_flight))
        if self._is_lockstep:
            return await self._queues[at].sample(request)
        async with self._in_flight[at].place(request.num_samples):
            result: Samples = await self._call(at, "sample", request)
            return result

    async def _call(self, at: int, method: str, *args: Any) -> Any:
        while True:
            actor = self._actor(at)
            answer = getattr(actor, method).remote(*args)
            try:
                return await answer
            except asyncio.CancelledError:
                ray.cancel(answer)  # otherwise the engine would keep generating
                raise
            except DEATHS as error:
                if self._actor(at) is actor:  # otherwise it has been replaced already
                    # If the replacement dies while it starts, the next call finds it dead.
                    with pause_deadline(restart=True), suppress(*DEATHS):
                        await self._replaced(at, error)
