"""Streams of full models from a learner to its engines, without files.

A transfer reaches all engines or is repeated. An engine that missed a part refuses requests until
it has received a whole model.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingllms.cluster.learners import Learners
from pettingllms.config import RunConfig
from pettingllms.errors import ClusterError, LearnerLostError
from pettingllms.policies import ModelGroup, group_resources
from pettingllms.transfer.link import Link

Failures = Sequence[BaseException | None]
"""Why each engine did not take the weights; None: it did."""
MEMBER_SHARE = 0.5
"""Part of the timeout of a transfer that members wait for each other. The rest is for the answers
of the others, of which one tells that an engine died, so that it is restarted."""


class WeightTransfer:
    """The process group of one learner and its engines; it is created again when engines change."""

    def __init__(self, learners: Learners, dtype: str, workers: int, timeout: float) -> None:
        self._learners = learners
        self._dtype = dtype
        self._workers = workers
        self._timeout = timeout
        self._members: list[Any] = []
        """The connected engines."""
        self._lock = asyncio.Lock()

    async def weight_hash(self, policy: str) -> str:
        """The hash of the learner's current weights."""
        found: str = await self._learners.call("weight_hash", policy)
        return found

    async def send(self, policy: str, version: int, actors: Sequence[Any]) -> tuple[str, Failures]:
        """Send the learner's weights to engines; return their hash and the engines' failures."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    if failures := await self._connect(actors):
                        return "", failures
                    manifest = await self._learners.call("manifest", policy, self._dtype)
                    what = (policy, version, manifest)
                    sending = self._learners.call("send", policy, self._dtype)
                    receiving = [actor.receive_weights.remote(*what) for actor in actors]
                    return await self._together(sending, receiving)
            except TimeoutError:
                self._members = []
                raise ClusterError(
                    f"the weights of '{policy}' did not reach its engines within {self._timeout:g} "
                    "s (cluster.transfer_timeout): the learner or an engine hangs, or the network "
                    "is too slow"
                ) from None

    async def _connect(self, actors: Sequence[Any]) -> Failures:
        """Form the process group, unless it exists; failures if some engine could not join."""
        if self._members == list(actors):
            return []
        self._members = []
        count = 1 + self._workers * len(actors)
        link = Link(await self._learners.rendezvous(), count, MEMBER_SHARE * self._timeout)
        firsts = range(1, count, self._workers)
        _, failures = await self._together(
            self._learners.call("join_stream", link),
            [
                actor.join_stream.remote(replace(link, first=first))
                for actor, first in zip(actors, firsts, strict=True)
            ],
        )
        if any(failures):
            return failures
        self._members = list(actors)
        return []

    async def _together(self, learning: Any, receiving: Sequence[Any]) -> tuple[Any, Failures]:
        """The learner's result, and the failures of engines."""
        sent, *answers = await asyncio.gather(learning, *receiving, return_exceptions=True)
        failures = [one if isinstance(one, BaseException) else None for one in answers]
        if isinstance(sent, BaseException) or any(failures):
            self._members = []
        is_lost = isinstance(sent, LearnerLostError)  # the cause of the engines' failures
        if isinstance(sent, BaseException) and (is_lost or not any(failures)):
            raise sent
        return sent, failures

    def disconnect(self) -> None:
        """Form the process group again before the next transfer, with other ranks."""
        self._members = []


@dataclass(slots=True)
class Streamed:
    """Weights that a policy samples with, which its learner sends from its memory."""

    version: int
    transfer: WeightTransfer
    weight_hash: str = ""
    """Empty until they were sent."""

    async def send(self, policy: str, actors: Sequence[Any]) -> Failures:
        """Send to some engines, possibly again. A learner that has been updated since has only the
        weights of the next version."""
        if not self.weight_hash:
            sent, failures = await self.transfer.send(policy, self.version, actors)
            if not any(failures):
                self.weight_hash = sent
            return failures
        expected = await self.transfer.weight_hash(policy)
        while True:
            version = self.version + (expected != self.weight_hash)
            sent, failures = await self.transfer.send(policy, version, actors)
            if any(failures) or sent == expected:
                return failures
            expected = sent  # updated while the members connected


def transfer_of(config: RunConfig, group: ModelGroup, learners: Learners) -> WeightTransfer | None:
    """How a model's weights are streamed; None: adapters, engines that take only files, and a
    learner that shares its engine's GPU, where NCCL cannot connect them."""
    inference, cluster = config.inference, config.cluster
    is_able = inference.capabilities.stream and cluster.placement == "separate"
    if group.publish_method != "publish_weights" or not is_able:
        return None
    workers = group_resources(config, group).tensor_parallel
    return WeightTransfer(learners, inference.dtype, workers, cluster.transfer_timeout)
