"""The inference engines of one model: replicas on Ray, restarted when they die.

A reply is a function of the request's ids and seed, so a request that was lost with its engine is
sent again.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayError

from pettingllms.errors import ClusterError, EngineDiedError, NoAnswerError
from pettingllms.inference.engines.base import EngineSpec, InferenceEngine, lockstep_parts
from pettingllms.registry import ENGINES
from pettingllms.runtime.in_flight import InFlight, current_clock, pause_deadline, stalled
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, LogProbs, Sample, SampleRequest, ScoreRequest

STOP_SECONDS = 10.0
QUIET_TURNS = 5
"""Turns of the event loop without a new request after which a batch is sent."""
Samples = Sequence[Sample | Failed]


@dataclass(slots=True)
class Replica:
    """One engine, and the number of its restarts."""

    actor: Any
    num_restarts: int = 0
    restart: asyncio.Task[None] | None = None
    """The restart in progress, for which all requests wait."""


@dataclass(frozen=True, slots=True)
class Published:
    """The weights that a policy samples with; the files stay in Ray's object store."""

    method: str
    version: int
    files: Any


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue of a lockstep engine."""

    request: SampleRequest
    sent: asyncio.Future[None]
    answer: asyncio.Future[Samples]


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
        self._send = send
        self._max_replies = max_replies
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
            for part in lockstep_parts([one.request for one in batch], self._max_replies):
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


class Engines:
    """A sampler over replicas; requests of one task go to the same replica."""

    def __init__(
        self,
        specs: Sequence[EngineSpec],
        num_gpus: float,
        max_restarts: int,
        notify: Callable[[str], None],
    ) -> None:
        self._specs = specs
        self._class: type[InferenceEngine] = ENGINES.load(specs[0].config.engine)
        self._max_restarts = max_restarts
        self._notify = notify
        self._options = {"num_cpus": 0, "num_gpus": num_gpus, "max_concurrency": 100_000}
        self._published: dict[str, Published] = {}
        self.replicas = [Replica(self._create(spec)) for spec in specs]
        sizes = [spec.config.max_num_seqs for spec in specs]
        self._in_flight = [InFlight(size) for size in sizes]
        self._queues = [
            Queue(partial(self._call, at, "sample_many"), size) for at, size in enumerate(sizes)
        ]

    async def start(self) -> None:
        """Wait until all engines have loaded their model."""
        await self._started([replica.actor for replica in self.replicas])

    async def _started(self, actors: Sequence[Any]) -> None:
        seconds = self._specs[0].config.start_timeout
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(actor.start.remote() for actor in actors))
        except TimeoutError:
            raise ClusterError(
                f"an engine for {self._specs[0].model} did not start within {seconds:g} s "
                "(inference.start_timeout)"
            ) from None

    async def sample(self, request: SampleRequest) -> Samples:
        """Send a request to the replica of its task; retry if the replica dies."""
        at = derive_seed(request.task_id) % len(self.replicas)
        if self._class.capabilities.lockstep:
            return await self._queues[at].sample(request)
        async with self._in_flight[at].place(request.num_samples):
            result: Samples = await self._call(at, "sample", request)
            return result

    async def publish(self, policy: str, new: Published) -> None:
        """Send new weights of a policy to all replicas."""
        self._published[policy] = new
        calls = (
            self._call(at, new.method, policy, new.version, new.files)
            for at in range(len(self.replicas))
        )
        await asyncio.gather(*calls)

    async def drop(self, policy: str) -> None:
        """Remove a policy from all replicas."""
        del self._published[policy]
        await asyncio.gather(*(self._call(at, "drop", policy) for at in range(len(self.replicas))))

    async def score(self, policy: str, given: ScoreRequest) -> list[LogProbs]:
        """Each replica's log-probs of a fixed reply."""
        replicas = range(len(self.replicas))
        every = await asyncio.gather(*(self._score(at, policy, [given]) for at in replicas))
        return [one for (one,) in every]

    async def score_together(
        self, policies: Sequence[str], given: ScoreRequest
    ) -> list[dict[str, LogProbs]]:
        """Each replica's log-probs of a fixed reply by several policies, in one batch."""
        replicas = range(len(self.replicas))
        return list(
            await asyncio.gather(*(self._score_together(at, policies, given) for at in replicas))
        )

    async def _score_together(
        self, at: int, policies: Sequence[str], given: ScoreRequest
    ) -> dict[str, LogProbs]:
        async with self._in_flight[at].place(len(policies)):
            found: dict[str, LogProbs] = await self._call(at, "score_together", policies, given)
            return found

    async def score_many(
        self, policy: str, given: Sequence[ScoreRequest], temperature: float = 1.0
    ) -> list[LogProbs]:
        """Log-probs of many fixed replies at a temperature, divided among the replicas."""
        num = len(self.replicas)
        calls = (self._score(at, policy, given[at::num], temperature) for at in range(num))
        found: list[LogProbs] = [np.empty(0, np.float32)] * len(given)
        for at, some in enumerate(await asyncio.gather(*calls)):
            found[at::num] = some
        return found

    async def _score(
        self, at: int, policy: str, given: Sequence[ScoreRequest], temperature: float = 1.0
    ) -> list[LogProbs]:
        async with self._in_flight[at].place(len(given)):
            found: list[LogProbs] = await self._call(at, "score_many", policy, given, temperature)
            return found

    async def versions(self) -> list[dict[str, int]]:
        """The policy versions of each replica."""
        calls = (self._call(at, "versions") for at in range(len(self.replicas)))
        return list(await asyncio.gather(*calls))

    async def sleep(self) -> None:
        """Let all replicas free their memory."""
        await asyncio.gather(*(self._call(at, "sleep") for at in range(len(self.replicas))))

    async def wake(self) -> None:
        """Wake all replicas up."""
        await asyncio.gather(*(self._call(at, "wake") for at in range(len(self.replicas))))

    async def stop(self) -> None:
        """Stop the engines' processes."""
        for queue in self._queues:
            await queue.close()
        for replica in self.replicas:
            if replica.restart is not None:
                replica.restart.cancel()
            with suppress(RayError, TimeoutError):  # killed below in any case
                async with asyncio.timeout(STOP_SECONDS):
                    await replica.actor.stop.remote()
            ray.kill(replica.actor)

    def _create(self, spec: EngineSpec) -> Any:
        if not ENGINES.ships(spec.config.engine):  # workers cannot import a user's file by its name
            ray.cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]
                sys.modules[self._class.__module__]
            )
        return ray.remote(self._class).options(**self._options).remote(spec)

    async def _call(self, at: int, method: str, *args: Any) -> Any:
        replica = self.replicas[at]
        while True:
            actor = replica.actor
            answer = getattr(actor, method).remote(*args)
            try:
                return await answer
            except asyncio.CancelledError:
                ray.cancel(answer)  # otherwise the engine would keep generating
                raise
            except (RayActorError, OutOfMemoryError, EngineDiedError) as error:
                if replica.actor is actor:  # otherwise another request has restarted it
                    if replica.restart is None:
                        replica.restart = asyncio.create_task(self._restart(at, error))
                    with pause_deadline(restart=True):
                        await asyncio.shield(replica.restart)

    async def _restart(self, at: int, error: Exception) -> None:
        replica, spec = self.replicas[at], self._specs[at]
        try:
            await self._restart_replica(replica, spec, error)
        finally:
            replica.restart = None

    async def _restart_replica(self, replica: Replica, spec: EngineSpec, error: Exception) -> None:
        if replica.num_restarts >= self._max_restarts:
            raise ClusterError(
                f"the engine for {spec.model} died {replica.num_restarts + 1} times, more than "
                f"cluster.max_restarts = {self._max_restarts} allows; the last time: {error}"
            ) from error
        replica.num_restarts += 1
        start = time.monotonic()
        self._notify(f"an engine for {spec.model.name} died; restarting it")
        ray.kill(replica.actor)
        new = self._create(spec)
        await self._started([new])
        for policy, published in self._published.items():
            method = getattr(new, published.method)
            await method.remote(policy, published.version, published.files)
        replica.actor = new
        seconds = time.monotonic() - start
        self._notify(f"the engine restarted in {seconds:.1f} s; no request was lost")
