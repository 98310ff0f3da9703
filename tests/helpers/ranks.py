"""A process that is one rank of several, for tests that start them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


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
