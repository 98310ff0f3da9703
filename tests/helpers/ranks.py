"""A process that is one rank of several, for tests that start them."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from pettingllms.learners.shard_writer import LocalFolder, ShardWriter


@contextmanager
def rank_of(rank: int, num_ranks: int, folder: Path) -> Iterator[None]:
    """Meet the other ranks, if there are any, and part from them in the end."""
    torch.set_num_threads(1)
    if num_ranks == 1:
        yield
        return
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks)
    yield
    dist.barrier()
    dist.destroy_process_group()


def note(found: Any, rank: int, num_ranks: int, folder: Path) -> None:
    """Leave what rank 0 found."""
    if rank == 0:
        (folder / f"{num_ranks}.json").write_text(json.dumps(found))


def noted(num_ranks: int, folder: Path) -> Any:
    """What so many ranks found."""
    return json.loads((folder / f"{num_ranks}.json").read_text())


def save_parts(made: Any, policy: str, folder: Path, background: bool = True) -> dict[str, str]:
    """Write this rank's part of a learner or critic, as its process does; the hash of each file."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = ShardWriter(torch.device("cpu"))
    writer.start(policy, LocalFolder(folder), *made.parts(policy), background)
    while (written := writer.poll(policy)) is None:
        time.sleep(0.001)
    assert not written.problem, written.problem
    return written.hashes


class SavesInProcess:
    """A team or learners with one learner in this process, as far as checkpoints are concerned."""

    learner: Any
    snapshots = SimpleNamespace(sources={})

    def learners_of(self, _: str) -> "SavesInProcess":
        return self

    async def reach(self, _: Path) -> list[bool]:
        return [True]

    async def load(self, policy: str, files: Any) -> None:
        self.learner.load(policy, files)

    async def save(self, policy: str, folder: Path, background: bool) -> None:
        self.writer = getattr(self, "writer", None) or ShardWriter(torch.device("cpu"))
        self.writer.start(policy, LocalFolder(folder), *self.learner.parts(policy), background)

    async def saved(self, policy: str) -> dict[str, str]:
        while (written := self.writer.poll(policy)) is None:  # noqa: ASYNC110 - a thread writes
            await asyncio.sleep(0.001)
        assert not written.problem, written.problem
        return written.hashes
