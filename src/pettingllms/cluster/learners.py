"""The ranks of one learner or critic on Ray: each call goes to all ranks, and rank 0 answers."""

import asyncio
import tempfile
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

import ray

from pettingllms.config.policies import FullPolicy
from pettingllms.errors import ClusterError
from pettingllms.learners.critic import CriticSpec
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.rank import Rank
from pettingllms.policies.files import Files, TemporaryFiles, files_in

START_SECONDS = 1800.0
T = TypeVar("T")


class Learners:
    """A model in training, in one process or sharded over several."""

    def __init__(self, spec: LearnerSpec | CriticSpec, num_gpus: float, num_threads: int) -> None:
        actor = ray.remote(Rank).options(num_cpus=0, num_gpus=num_gpus)
        ranks = range(spec.config.num_ranks)
        self.actors: list[Any] = [actor.remote(spec, rank, num_threads) for rank in ranks]
        self._spec = spec
        self._one_machine = False

    async def start(self, loopback: bool) -> str:
        """Connect the ranks and load the model; what users should know, or empty. `loopback`: all
        processes run on this machine."""
        self._one_machine = loopback
        try:
            async with asyncio.timeout(START_SECONDS):
                alone = len(self.actors) == 1
                meeting = "" if alone else await self.actors[0].rendezvous.remote(loopback)
                starts = [actor.start.remote(meeting) for actor in self.actors]
                notice: str = (await asyncio.gather(*starts))[0]
        except TimeoutError:
            raise ClusterError(f"a learner did not start within {START_SECONDS:g} s") from None
        return notice

    async def call(self, method: str, *args: Any) -> Any:
        """The result of rank 0, once all ranks are done."""
        calls = [actor.call.remote(method, *args) for actor in self.actors]
        return (await asyncio.gather(*calls))[0]

    async def files(self, policy: str) -> tuple[Any, str]:
        """A reference to the policy's files, and the hash of its weights.

        On one machine, a full model is a mapping to files in a temporary folder instead, so that no
        process holds the whole model."""
        policies = self._spec.policies if isinstance(self._spec, LearnerSpec) else {}
        if self._one_machine and isinstance(policies.get(policy), FullPolicy):
            return await self._written(policy)
        both = [a.call.options(num_returns=2).remote("files", policy) for a in self.actors]
        weight_hashes = await asyncio.gather(*(weight_hash for _, weight_hash in both))
        return both[0][0], weight_hashes[0]

    async def _written(self, policy: str) -> tuple[TemporaryFiles, str]:
        folder = Path(tempfile.mkdtemp(prefix="pettingllms-weights-"))
        files = TemporaryFiles(folder)  # deletes the folder also if the call fails
        weight_hash: str = await self.call("write", policy, folder)
        files.update(files_in(folder))
        return files, weight_hash

    async def stop(self) -> None:
        """Stop the processes."""
        for actor in self.actors:
            ray.kill(actor)


async def saved_policy(learners: Learners, policy: str, folder: Path | None) -> Files:
    """A policy's weights and optimizer state, as files; in the folder if one is given."""
    if folder is not None:
        await learners.call("save", policy, folder)
        return files_in(folder)
    weights, _ = await learners.files(policy)
    state: dict[str, bytes] = await learners.call("state", policy)
    return {**await weights, **state}


async def run_all(calls: Iterable[Coroutine[Any, Any, T]], concurrent: bool) -> list[T]:
    """The results of calls to several processes, in order.

    Learners that share a machine run one after another; a failure prevents all later calls.
    """
    if concurrent:
        return list(await asyncio.gather(*calls))
    return [await call for call in calls]
