"""The ranks of one learner on Ray: every call goes to all of them, rank 0 answers."""

import asyncio
import os
import socket
import tempfile
from typing import Any

import ray

from pettingllms.learners.rank import Rank


class Learners:
    """A model that is trained, by one process or sharded over several."""

    def __init__(self, spec: Any, num_gpus: float, num_threads: int, loopback: bool) -> None:
        num_ranks = spec.config.num_ranks
        meeting = _meeting(loopback) if num_ranks > 1 else ""
        actor = ray.remote(Rank).options(num_cpus=0, num_gpus=num_gpus)
        self.actors: list[Any] = [
            actor.remote(spec, rank, num_ranks, meeting, num_threads) for rank in range(num_ranks)
        ]

    async def call(self, method: str, *args: Any) -> Any:
        """What rank 0 gives, once all ranks are done."""
        answers = await asyncio.gather(*(getattr(a, method).remote(*args) for a in self.actors))
        return answers[0]

    async def files(self, policy: str) -> tuple[Any, str]:
        """A reference to the policy's files, and the hash of its weights."""
        both = [a.files.options(num_returns=2).remote(policy) for a in self.actors]
        marks = await asyncio.gather(*(mark for _, mark in both))
        return both[0][0], marks[0]

    async def stop(self) -> None:
        """End the processes."""
        for actor in self.actors:
            ray.kill(actor)


def _meeting(loopback: bool) -> str:
    """Where ranks find each other: a file on one machine, which opens no port; else an address."""
    if loopback:
        folder = tempfile.mkdtemp(prefix="pettingllms-ranks-")
        return f"file://{os.path.join(folder, 'store')}"  # noqa: PTH118 - a URL
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    return f"tcp://{_address()}:{port}"


def _address() -> str:
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return address
