"""The ranks of one learner or critic on Ray: each call goes to all ranks, and rank 0 answers."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import ray

from pettingllms.cluster.checkpoint_files import (
    RayFolder,
    folder_of,
    reached,
    start_server,
    through,
)
from pettingllms.cluster.node_rank import NodeRank
from pettingllms.cluster.reservation import Place
from pettingllms.cluster.watchdog import Watchdog
from pettingllms.config import ClusterConfig
from pettingllms.config.policies import FullPolicy
from pettingllms.errors import CheckpointError, ClusterError
from pettingllms.learners.critic import CriticSpec
from pettingllms.learners.deferred import Deferred
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.serialization import Units
from pettingllms.learners.shard_writer import LocalFolder
from pettingllms.policies.files import Files, TemporaryFiles, files_in
from pettingllms.runtime.busy_clock import BusyClock

START_SECONDS = 1800.0
POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 2.0
WORK = ("train", "values")
"""Methods that are a learner's work; others prepare it, or check and send its results."""
T = TypeVar("T")


class Learners:
    """A model in training, in one process or sharded over several."""

    def __init__(self, spec: LearnerSpec | CriticSpec, places: Sequence[Place]) -> None:
        assert len(places) == spec.config.num_ranks  # noqa: S101 - one place per rank
        self._spec = spec
        self._places = places
        self.actors: list[Any] = self._created()
        """Empty while they are stopped."""
        self._one_machine = False
        self._server: Any = None  # only if a rank does not reach a folder
        policies = spec.policies if isinstance(spec, LearnerSpec) else ()
        self._watchdog = Watchdog(policies)
        self.clock = BusyClock()
        """How long the ranks have worked."""

    def watch(self, config: ClusterConfig, notify: Callable[[str], None]) -> None:
        """Report ranks that hang, and stop waiting for them after the bound of the run."""
        self._watchdog.bound, self._watchdog.notify = config.learner_timeout, notify

    @property
    def has_lost_rank(self) -> bool:
        """Whether a rank died or hangs, so that all have to start again."""
        return self._watchdog.has_lost_rank

    async def restart(self) -> None:
        """Start again after `stop`, with the weights of the model."""
        self.actors = self._created()
        self._watchdog.places, self._watchdog.has_lost_rank = (), False
        await self.start(self._one_machine)

    def _created(self) -> list[Any]:
        return [
            ray.remote(NodeRank).options(**place.options).remote(self._spec, rank, place.core_share)
            for rank, place in enumerate(self._places)
        ]

    async def start(self, loopback: bool) -> str:
        """Connect the ranks and load the model; what users should know, or empty. `loopback`: all
        processes run on this machine."""
        self._one_machine = loopback
        try:
            async with asyncio.timeout(START_SECONDS):
                asked = [actor.place.remote() for actor in self.actors]
                places = await self._watchdog.answers(asked, "place", START_SECONDS)
                self._watchdog.places = places
                alone = len(self.actors) == 1
                own = "" if loopback else places[0].node.address
                meeting = "" if alone else await self._first("rendezvous", own)
                starts = zip(self.actors, places, strict=True)
                calls = [a.start.remote(meeting, own and at.node.address) for a, at in starts]
                notice: str = (await self._watchdog.answers(calls, "start", START_SECONDS))[0]
        except TimeoutError:
            raise ClusterError(
                f"{self._watchdog.name} did not start within {START_SECONDS:g} s"
            ) from None
        return notice

    async def call(self, method: str, *args: Any) -> Any:
        """The result of rank 0, once all ranks are done."""
        if len(self.actors) > 1:  # ranks share one copy of a batch in the object store
            args = tuple(ray.put(a) if isinstance(a, Units | Deferred) else a for a in args)
        with self.clock.busy() if method in WORK else nullcontext():
            return (await self._all(lambda actor: actor.call.remote(method, *args), method))[0]

    async def _all(self, ask: Callable[[Any], Any], what: str) -> list[Any]:
        return await self._watchdog.answers([ask(actor) for actor in self.actors], what)

    async def rendezvous(self) -> str:
        """Where other processes meet rank 0."""
        address = "" if self._one_machine else self._watchdog.places[0].node.address
        place: str = await self._first("free_place", address)
        return place

    async def _first(self, method: str, *args: Any) -> Any:
        """The answer of rank 0."""
        calls = [getattr(actor, method).remote(*args) for actor in self.actors[:1]]
        return (await self._watchdog.answers(calls, method))[0]

    async def files(self, policy: str, merged: bool = False) -> tuple[Any, str]:
        """A reference to the policy's files, and the hash of its weights. `merged`: of its base
        with the adapter added.

        On one machine, a full model is a mapping to files in a temporary folder instead, so that no
        process holds the whole model."""
        policies = self._spec.policies if isinstance(self._spec, LearnerSpec) else {}
        if self._one_machine and (merged or isinstance(policies.get(policy), FullPolicy)):
            return await self._written("write_merged" if merged else "write", policy)
        method = "merged_files" if merged else "files"
        both = [a.call.options(num_returns=2).remote(method, policy) for a in self.actors]
        asked = [weight_hash for _, weight_hash in both]
        weight_hashes = await self._watchdog.answers(asked, method)
        return both[0][0], weight_hashes[0]

    async def _written(self, method: str, policy: str) -> tuple[TemporaryFiles, str]:
        folder = Path(tempfile.mkdtemp(prefix="pettingllms-weights-"))
        files = TemporaryFiles(folder)  # deletes the folder also if the call fails
        weight_hash: str = await self.call(method, policy, folder)
        files.update(files_in(folder))
        return files, weight_hash

    async def save(self, policy: str, folder: Path, background: bool) -> None:
        """Let every rank write its part to a folder of this machine. With `background`, the ranks
        first copy it, and write while they go on; `saved` waits for them."""
        reach = await self.reach(folder)
        places = [LocalFolder(folder) if one else RayFolder(self._server, folder) for one in reach]
        both = zip(self.actors, places, strict=True)
        asked = [actor.save.remote(policy, place, background) for actor, place in both]
        await self._watchdog.answers(asked, "save")

    async def saved(self, policy: str) -> dict[str, str]:
        """Wait until all ranks have written their parts; the hash of each file, by its name."""
        pause, start = POLL_SECONDS, time.monotonic()
        while True:
            found = await self._all(lambda actor: actor.saved.remote(policy), "saved")
            if all(found):
                break
            self._check_writing(policy, found, time.monotonic() - start)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_POLL_SECONDS)
        for rank, one in enumerate(found):
            if one.problem:
                raise CheckpointError(f"rank {rank} of '{policy}' failed to save: {one.problem}")
        return {name: file_hash for one in found for name, file_hash in one.hashes.items()}

    def _check_writing(self, policy: str, found: Sequence[Any], seconds: float) -> None:
        """Raise CheckpointError if ranks write for longer than the bound of the run."""
        bound = self._watchdog.bound
        if seconds > bound:
            slow = ", ".join(str(rank) for rank, one in enumerate(found) if not one)
            raise CheckpointError(
                f"ranks {slow} of '{policy}' have not finished their parts of a checkpoint after "
                f"{seconds:.0f} s (cluster.learner_timeout = {bound:g}): the disk or the network "
                "folder of the run hangs or is too slow"
            )

    async def load(self, policy: str, files: Files) -> None:
        """Load a policy or critic; each rank reads its shard of files that are given by path."""
        folder = folder_of(files)
        reach = [True for _ in self.actors] if folder is None else await self.reach(folder)
        given = [dict(files) if one else through(self._server, files) for one in reach]
        names = () if isinstance(self._spec, CriticSpec) else (policy,)
        both = zip(self.actors, given, strict=True)
        asked = [actor.call.remote("load", *names, some) for actor, some in both]
        await self._watchdog.answers(asked, "load")

    async def reach(self, folder: Path) -> list[bool]:
        """Which ranks reach a folder of this machine; for the others a file server is started."""
        if self._one_machine:
            return [True for _ in self.actors]
        found = await reached(self.actors, folder, self._watchdog)
        if self._server is None and not all(found):
            self._server = start_server()
        return found

    async def stop(self) -> None:
        """Stop the processes."""
        for actor in (*self.actors, *([self._server] if self._server else [])):
            ray.kill(actor)
        self.actors, self._server = [], None


def watched(
    learners: Sequence[Learners], config: ClusterConfig, notify: Callable[[str], None]
) -> Sequence[Learners]:
    """The learners, whose ranks are now reported if they hang."""
    for one in learners:
        one.watch(config, notify)
    return learners


async def run_all(calls: Iterable[Coroutine[Any, Any, T]], concurrent: bool) -> list[T]:
    """The results of calls to several processes, in order.

    Learners that share a machine run one after another; a failure prevents all later calls.
    Concurrent ones all end before a failure is raised, so that none of them works on unseen.
    """
    if concurrent:
        return await finish_all(calls)
    return [await call for call in calls]


async def finish_all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of concurrent calls, in order. If some fail, the first error, once all ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
