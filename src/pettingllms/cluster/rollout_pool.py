"""The driver's side of rollout workers: it distributes tasks, and restarts workers that die.

Tasks are sent in batches of 16 to 64 episodes, because a call through Ray costs about a
millisecond. A worker gets the next batch when it has finished one, so a long episode delays only
its own batch. If a worker dies, its unfinished batches are played again, by it or by others;
finished ones are not.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import ray
from ray.exceptions import ObjectLostError, RayTaskError

from pettingllms.cluster.engine_client import EngineLinks
from pettingllms.cluster.engines import Engines
from pettingllms.cluster.failures import DEATHS
from pettingllms.cluster.heartbeat import until_silent
from pettingllms.cluster.local_reader import start_reader
from pettingllms.cluster.playing import Play
from pettingllms.cluster.reservation import NO_CORES
from pettingllms.cluster.rollout_workers import (
    Death,
    RolloutWorker,
    Started,
    WorkerSpec,
    worker_spec,
)
from pettingllms.cluster.stored_content import StoredContent
from pettingllms.config import RunConfig
from pettingllms.errors import ClusterError, EngineDiedError, LearnerLostError
from pettingllms.gateway.router import Router
from pettingllms.policies import ModelGroup
from pettingllms.policies.resources import num_workers
from pettingllms.rollouts import in_order
from pettingllms.rollouts.packed_episodes import unpack
from pettingllms.rollouts.worker import rare_collections, with_distinct_ids
from pettingllms.types import Episode, Task

T = TypeVar("T")
MIN_EPISODES, MAX_EPISODES = 16, 64
"""Episodes per batch, if there are enough."""
BATCHES = 8
"""Batches per worker, if they have enough episodes."""
STOP_SECONDS = 10.0
"""Time that workers have to end programs before they are killed."""
OPTIONS = {**NO_CORES, "max_concurrency": 100_000, "scheduling_strategy": "SPREAD"}
"""Ray's options of a rollout worker: they spread over the nodes."""
RETRY_SECONDS = 10.0
"""Time after which an engine is replaced again whose learner was lost meanwhile."""
QUEUED = 4
"""Episodes that a worker plays at once, per slot of an engine that it has."""


@dataclass(slots=True, eq=False)
class Slot:
    """One rollout worker."""

    actor: Any
    rank: int = 0
    num_restarts: int = 0
    restart: asyncio.Task[None] | None = None
    """The restart in progress."""
    num_pulling: int = 0
    """Number of coroutines that send batches to it."""


class RolloutPool:
    """The rollout workers of a run."""

    def __init__(
        self,
        config: RunConfig,
        engines: Mapping[str, Engines],
        policies: Mapping[str, Sequence[str]],
        num_workers: int,
        notify: Callable[[str], None],
        router: Router | None = None,
    ) -> None:
        """`policies` are those of each model, whose engines have the same key. `router`: in front
        of the workers' gateways."""
        self._config = config
        self._engines = engines
        self._policies = policies
        self._notify = notify
        self._router = router
        self._slots = [Slot(None, rank) for rank in range(num_workers)]
        self._reader: Any = None
        self._sharing: list[Any] = []
        """The actors among which the engines' slots are divided now."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None]

    async def start(self) -> list[str]:
        """Start the workers; what users should know."""
        self._failed = asyncio.get_running_loop().create_future()
        for slot in self._slots:
            slot.actor = self._create(slot.rank)
        starts = (self._started(slot.actor) for slot in self._slots)
        started = await asyncio.gather(*starts)
        for slot, one in zip(self._slots, started, strict=True):
            self._route(slot, one)
            self._spawn(self._watch(slot))
            self._spawn(self._replace_silent(slot))
        return list(started[0].notices)

    async def _started(self, actor: Any) -> Started:
        """What a worker reports once it runs; ClusterError if it hangs."""
        seconds = self._config.inference.start_timeout
        try:
            with _own_errors():
                async with asyncio.timeout(seconds):
                    found: Started = await actor.start.remote()
                    return found
        except TimeoutError:
            raise ClusterError(
                f"a rollout worker did not start within {seconds:g} s (inference.start_timeout)"
            ) from None

    async def stop(self) -> None:
        """Stop the workers."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._failed.cancel():
            self._failed.exception()  # `play` has raised it
        for slot in self._slots:
            if slot.restart is not None:
                slot.restart.cancel()
        actors = [slot.actor for slot in self._slots if slot.actor is not None]
        if actors:  # end the programs of workflows with their subprocesses
            await asyncio.wait(
                [asyncio.ensure_future(_ended(actor.stop.remote())) for actor in actors],
                timeout=STOP_SECONDS,
            )
        for actor in [*actors, *filter(None, [self._reader])]:
            ray.kill(actor)

    async def play(
        self, play: Play, tasks: Sequence[Task], deliver: Callable[[int], None]
    ) -> list[Episode]:
        """Sample episodes of the tasks, in their order. `deliver` gets the number of finished
        ones."""
        given = with_distinct_ids(tasks)
        if not given:
            return []
        waiting = deque(batches(given, play.rollout.num_episodes, len(self._slots)))
        how = ray.put(play)
        episodes: list[Episode] = []

        async def pull(slot: Slot) -> None:
            while waiting:
                batch = waiting.popleft()
                actor = slot.actor
                try:
                    found = await self._send(actor, how, batch)
                except ObjectLostError:  # what the worker returned left with its machine
                    waiting.appendleft(batch)
                    continue
                except DEATHS as error:
                    waiting.appendleft(batch)
                    await self._revive(slot, actor, error)
                    continue
                for episode in found:
                    episodes.append(episode)
                    deliver(len(episodes))

        most = self._num_at_once(play, len(given) * play.rollout.num_episodes)
        at_once = max(1, most // max(1, len(waiting[0]) * play.rollout.num_episodes))
        pullers = min(at_once * len(self._slots), len(waiting))
        idlest = sorted(self._slots, key=lambda slot: slot.num_pulling)
        chosen = [idlest[at % len(idlest)] for at in range(pullers)]
        with rare_collections():
            await self._run_all(chosen, pull)
        return in_order(episodes, given)

    async def apply(self, function: Callable[[list[Episode]], T], episodes: list[Episode]) -> T:
        """Call a function that reads the content of episodes in a process of this machine; it gets
        references."""
        if self._config.cluster.address:  # workers may be on other machines
            if self._reader is None:
                self._reader = start_reader(self._config.cluster.max_restarts)
            with _own_errors():
                result: T = await self._reader.call.remote(function, episodes)
                return result
        slot = self._slots[0]
        while True:
            actor = slot.actor
            try:
                with _own_errors():
                    found: T = await actor.apply.remote(function, episodes)
                    return found
            except ObjectLostError:  # what the worker returned left with its machine
                continue
            except DEATHS as error:
                await self._revive(slot, actor, error)

    async def _run_all(
        self, slots: Sequence[Slot], pull: Callable[[Slot], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a coroutine per entry until all have ended, or an engine or worker is given up."""
        for slot in slots:
            slot.num_pulling += 1
        self._divide_slots()

        def end(slot: Slot, _: asyncio.Task[None]) -> None:
            slot.num_pulling -= 1
            num_playing = sum(bool(other.num_pulling) for other in self._slots)
            if num_playing <= len(self._sharing) // 2:  # the others take over the engines' slots
                self._divide_slots()

        try:
            async with asyncio.TaskGroup() as group:
                failed = group.create_task(self._raise_failure())
                pulling = [group.create_task(pull(slot)) for slot in slots]
                for slot, task in zip(slots, pulling, strict=True):
                    # Called also if the task is cancelled before it begins.
                    task.add_done_callback(partial(end, slot))
                await asyncio.gather(*pulling)
                failed.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _raise_failure(self) -> None:
        await asyncio.shield(self._failed)

    async def _send(self, actor: Any, how: Any, batch: Sequence[Task]) -> list[Episode]:
        summaries, tokens, texts = actor.play.options(num_returns=3).remote(how, batch)
        try:
            with _own_errors():
                found = await summaries
        except asyncio.CancelledError:
            ray.cancel(summaries)  # otherwise the worker would keep sampling
            raise
        return list(unpack(found, StoredContent(tokens, texts), {task.id: task for task in batch}))

    def _num_at_once(self, play: Play, num_episodes: int) -> int:
        """Episodes that a worker plays at once: half of its even part, so that the rest goes to
        the next ready worker, or enough to keep its slots in the engines busy if that is more."""
        places = sum(engines.num_slots for engines in self._engines.values())
        even = -(-num_episodes // len(self._slots))
        busy = QUEUED * places // len(self._slots)
        return min(play.rollout.max_concurrent, max(even // 2, busy, MIN_EPISODES))

    def _divide_slots(self) -> None:
        """Divide the engines' slots among the workers that play."""
        playing = [slot for slot in self._slots if slot.num_pulling]
        actors = [slot.actor for slot in playing]
        if actors == self._sharing:
            return
        self._sharing = actors
        for rank, actor in enumerate(actors):
            actor.bound.remote(rank, len(actors))

    def _create(self, rank: int) -> Any:
        return ray.remote(RolloutWorker).options(**OPTIONS).remote(self._spec(rank))

    def _route(self, slot: Slot, started: Started) -> None:
        """Let the router forward to a worker's gateway."""
        if self._router is not None:
            self._router.add(str(slot.rank), started.gateway_url)

    def _spec(self, rank: int) -> WorkerSpec:
        links: list[EngineLinks] = [
            engines.links(self._policies[name]) for name, engines in self._engines.items()
        ]
        url = self._router.url if self._router is not None else ""
        return worker_spec(self._config, links, len(self._slots), str(rank), url)

    async def _watch(self, slot: Slot) -> None:
        """Replace engines that a worker found dead, and the worker itself if it dies."""
        while True:
            actor = slot.actor
            try:
                death = await actor.next_death.remote()
            except DEATHS as error:
                await self._revive(slot, actor, error)
            else:
                self._spawn(self._replace(actor, death))

    async def _replace_silent(self, slot: Slot) -> None:
        """Replace a worker that hangs."""
        while True:
            actor = slot.actor
            error = await until_silent(actor, self._config.inference.engine_timeout)
            await self._revive(slot, actor, error)

    async def _replace(self, actor: Any, death: Death) -> None:
        engines = list(self._engines.values())[death.model]
        error = EngineDiedError(death.reason)
        while True:
            try:
                new, generation = await engines.replacement(death.at, death.generation, error)
                break
            except LearnerLostError:  # the run restarts the learner and goes on
                await asyncio.sleep(RETRY_SECONDS)
        try:
            await actor.replace.remote(death, new, generation)
        except DEATHS:
            return  # its successor gets current links

    async def _revive(self, slot: Slot, actor: Any, error: Exception) -> None:
        """Wait until another worker has taken the place of a dead one."""
        if slot.actor is actor:
            if slot.restart is None:
                slot.restart = asyncio.create_task(self._restart(slot, error))
            await asyncio.shield(slot.restart)

    async def _restart(self, slot: Slot, error: Exception) -> None:
        try:
            ray.kill(slot.actor)
            slot.actor = await self._successor(slot, error)
            self._divide_slots()
        finally:
            slot.restart = None

    async def _successor(self, slot: Slot, error: Exception) -> Any:
        """A worker that has started, in place of a dead one."""
        bound = self._config.cluster.max_restarts
        while slot.num_restarts < bound:
            slot.num_restarts += 1
            what = f"hangs: {error}" if isinstance(error, TimeoutError) else "died"
            self._notify(f"a rollout worker {what}; restarting it")
            new = self._create(slot.rank)
            try:
                self._route(slot, await self._started(new))
            except DEATHS as again:
                error = again
            except ClusterError:
                ray.kill(new)
                raise
            else:
                return new
        raise ClusterError(
            f"a rollout worker died {slot.num_restarts + 1} times, more than "
            f"cluster.max_restarts = {bound} allows; the last time: {error}"
        ) from error

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside the batches; if it fails, so do all that play."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)


async def _ended(call: Any) -> None:
    """Wait for a call to a worker that may be dead already."""
    with suppress(*DEATHS):
        await call


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise the errors of a worker as they were raised there, without Ray's report around them."""
    try:
        yield
    except RayTaskError as error:
        raise error.cause from error


def make_pool(
    config: RunConfig,
    groups: Sequence[ModelGroup],
    engines: Mapping[str, Engines],
    notify: Callable[[str], None],
    router: Router | None,
) -> RolloutPool | None:
    """The rollout workers of a run; None if the driver plays."""
    num_replicas = sum(len(some.replicas) for some in engines.values())
    num_cores = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    number = num_workers(config, num_replicas, num_cores)
    if not number:
        return None
    policies = {group.name: group.policies for group in groups}
    return RolloutPool(config, engines, policies, number, notify, router)


def batches(tasks: Sequence[Task], num_episodes: int, num_workers: int) -> list[list[Task]]:
    """Tasks in batches for workers, in order. Each task has `num_episodes` episodes."""
    least, most = -(-MIN_EPISODES // num_episodes), max(1, MAX_EPISODES // num_episodes)
    even = -(-len(tasks) // num_workers)
    size = min(max(len(tasks) // (num_workers * BATCHES), least), most, max(1, even))
    return [list(tasks[start : start + size]) for start in range(0, len(tasks), size)]
