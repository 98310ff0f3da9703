"""The inference engines of one model: replicas on Ray, restarted when they die."""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from pettingllms.cluster.engine_client import DEATHS, EngineClient, EngineLinks
from pettingllms.cluster.heartbeat import CHECKS, until_silent
from pettingllms.cluster.reservation import Place
from pettingllms.cluster.weight_transfer import Failures, Streamed
from pettingllms.errors import ClusterError, EngineDiedError, LearnerLostError, PettingError
from pettingllms.inference.engines.base import EngineSpec, InferenceEngine
from pettingllms.inference.engines.metered import metered
from pettingllms.registry import ENGINES
from pettingllms.runtime.busy_clock import Use
from pettingllms.types import LogProbs, ScoreRequest

STOP_SECONDS = 10.0


@dataclass(slots=True)
class Replica:
    """One engine, and the number of its restarts."""

    actor: Any
    place: Place
    num_restarts: int = 0
    generation: int = 0
    """Number of actors before its actor. While a replacement starts, it is still the old one."""
    restart: asyncio.Task[None] | None = None
    """The restart in progress, for which all requests wait."""


@dataclass(frozen=True, slots=True)
class Published:
    """The weights that a policy samples with; the files stay in Ray's object store."""

    method: str
    version: int
    files: Any

    async def send(self, policy: str, actors: Sequence[Any]) -> Failures:
        """Send them to some engines."""
        calls = (getattr(a, self.method).remote(policy, self.version, self.files) for a in actors)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        return [one if isinstance(one, BaseException) else None for one in answers]


class Engines(EngineClient):
    """The owner of one model's engines: creates, publishes to, restarts and stops them."""

    def __init__(
        self,
        specs: Sequence[EngineSpec],
        places: Sequence[Place],
        max_restarts: int,
        notify: Callable[[str], None],
    ) -> None:
        self._specs = specs
        self._class: type[InferenceEngine] = ENGINES.load(specs[0].config.engine)
        self._max_restarts = max_restarts
        self._notify = notify
        self._published: dict[str, Published | Streamed] = {}
        self.replicas = [
            Replica(self._create(spec, place), place)
            for spec, place in zip(specs, places, strict=True)
        ]
        self._heartbeats: list[asyncio.Task[None]] = []
        self._awake = asyncio.Event()
        """Cleared while learners use the memory of the engines; no replacement starts then."""
        self._awake.set()
        lockstep = self._class.capabilities.lockstep
        super().__init__(len(specs), specs[0].config.max_num_seqs, lockstep)

    @property
    def num_slots(self) -> int:
        """Replies that all replicas sample at once."""
        return sum(spec.config.max_num_seqs for spec in self._specs)

    def links(self, policies: Sequence[str]) -> EngineLinks:
        """How other processes reach these engines now."""
        return EngineLinks(
            model=self._specs[0].model,
            policies=tuple(policies),
            actors=tuple((replica.actor, replica.generation) for replica in self.replicas),
            max_num_seqs=self._specs[0].config.max_num_seqs,
            lockstep=self._class.capabilities.lockstep,
        )

    async def start(self) -> None:
        """Wait until all engines have loaded their model; from then on, replace those that hang."""
        await self._started([replica.actor for replica in self.replicas])
        replicas = range(len(self.replicas))
        self._heartbeats = [asyncio.create_task(self._replace_silent(at)) for at in replicas]

    async def _replace_silent(self, at: int) -> None:
        """Replace a replica whenever it hangs or dies, until `stop`."""
        bound = self._specs[0].config.engine_timeout
        with suppress(PettingError):  # the calls to this replica raise it too
            while True:
                actor = self._actor(at)
                error = await until_silent(actor, bound)
                if self._actor(at) is actor:
                    try:
                        await self._replaced(at, error)
                    except LearnerLostError:  # the run restarts the learner and goes on
                        await asyncio.sleep(bound / CHECKS)

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

    async def publish(self, policy: str, new: Published | Streamed) -> None:
        """Send new weights of a policy to all replicas. If one died or a stream broke, all get them
        again."""
        self._published[policy] = new
        failure: BaseException | None = None
        for _ in range(self._max_restarts + 1):
            actors = [replica.actor for replica in self.replicas]
            failures = await new.send(policy, actors)
            failed = [(at, one) for at, one in enumerate(failures) if one is not None]
            if not failed:
                return
            for at, failure in failed:
                if isinstance(failure, DEATHS):
                    if self._actor(at) is actors[at]:  # otherwise it has been replaced already
                        await self._replaced(at, failure)
                elif isinstance(new, Published):
                    raise failure
        raise ClusterError(
            f"the weights of '{policy}' did not reach all engines in {self._max_restarts + 1} "
            f"attempts (cluster.max_restarts); the last time: {failure}"
        ) from failure

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
        async with self._in_flight[at].place(len(policies), ahead=True):
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
        async with self._in_flight[at].place(len(given), ahead=True):
            found: list[LogProbs] = await self._call(at, "score_many", policy, given, temperature)
            return found

    async def versions(self) -> list[dict[str, int]]:
        """The policy versions of each replica."""
        calls = (self._call(at, "versions") for at in range(len(self.replicas)))
        return list(await asyncio.gather(*calls))

    async def use(self) -> list[Use]:
        """How busy each replica has been."""
        calls = (self._call(at, "use") for at in range(len(self.replicas)))
        return list(await asyncio.gather(*calls))

    async def sleep(self) -> None:
        """Let all replicas free their memory, unless they do already."""
        if not self._awake.is_set():
            return
        await asyncio.gather(*(self._call(at, "sleep") for at in range(len(self.replicas))))
        if any(spec.sleeps for spec in self._specs):
            self._awake.clear()

    async def wake(self) -> None:
        """Wake all replicas up; those that died in the meantime are replaced now."""
        self._awake.set()
        await asyncio.gather(*(self._call(at, "wake") for at in range(len(self.replicas))))

    async def stop(self) -> None:
        """Stop the engines' processes."""
        for heartbeat in self._heartbeats:
            heartbeat.cancel()
        for queue in self._queues:
            await queue.close()
        for replica in self.replicas:
            if replica.restart is not None:
                replica.restart.cancel()
            with suppress(RayError, TimeoutError):  # killed below in any case
                async with asyncio.timeout(STOP_SECONDS):
                    await replica.actor.stop.remote()
            ray.kill(replica.actor)

    def _create(self, spec: EngineSpec, place: Place) -> Any:
        if not ENGINES.ships(spec.config.engine):  # workers cannot import a user's file by its name
            ray.cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]
                sys.modules[self._class.__module__]
            )
        actor = ray.remote(metered(self._class)).options(max_concurrency=100_000, **place.options)
        return actor.remote(spec)

    async def replacement(self, at: int, generation: int, error: Exception) -> tuple[Any, int]:
        """The actor that serves as a replica after the death of an earlier generation, and its own
        generation. Restarts the replica unless that was done already."""
        replica = self.replicas[at]
        if replica.restart is not None or replica.generation == generation:
            await self._replaced(at, error)
        return replica.actor, replica.generation

    def _actor(self, at: int) -> Any:
        return self.replicas[at].actor

    async def _replaced(self, at: int, error: Exception) -> None:
        replica = self.replicas[at]
        if replica.restart is None:
            replica.restart = asyncio.create_task(self._restart(at, error))
        await asyncio.shield(replica.restart)

    async def _restart(self, at: int, error: Exception) -> None:
        replica, spec = self.replicas[at], self._specs[at]
        try:
            lost: Exception | None = error
            while lost is not None:  # a replacement may die while it starts
                lost = await self._restart_replica(replica, spec, lost)
        finally:
            replica.restart = None

    async def _restart_replica(
        self, replica: Replica, spec: EngineSpec, error: Exception
    ) -> Exception | None:
        """Replace an engine; the error of a replacement that died as well, or None."""
        ray.kill(replica.actor)
        await self._awake.wait()
        if replica.num_restarts >= self._max_restarts:
            raise ClusterError(
                f"the engine for {spec.model} died {replica.num_restarts + 1} times, more than "
                f"cluster.max_restarts = {self._max_restarts} allows; the last time: {error}"
            ) from error
        replica.num_restarts += 1
        what = f"hangs: {error}" if isinstance(error, TimeoutError) else "died"
        start = time.monotonic()
        self._notify(f"an engine for {spec.model.name} {what}; restarting it")
        new = self._create(spec, replica.place)
        with ExitStack() as unused:
            unused.callback(ray.kill, new)  # a traceback may keep it alive, and with it its GPUs
            try:
                await self._started([new])
                await self._send_published(new)
            except DEATHS as died:
                return died
            except LearnerLostError:  # not a fault of the engine
                replica.num_restarts -= 1
                raise
            unused.pop_all()
        replica.actor, replica.generation = new, replica.generation + 1
        seconds = time.monotonic() - start
        self._notify(f"the engine restarted in {seconds:.1f} s; no request was lost")
        return None

    async def _send_published(self, actor: Any) -> None:
        """Send the weights of all policies to a new engine."""
        for policy, published in [*self._published.items()]:
            (failure,) = await published.send(policy, [actor])
            if isinstance(published, Streamed) and isinstance(failure, Exception):
                # A stream may break without a fault of the engine; the next one starts over.
                raise EngineDiedError(f"it got no weights of '{policy}': {failure}") from failure
            if failure is not None:
                raise failure
