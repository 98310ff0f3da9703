"""A process group between a learner and its engines, beside the default groups of both: gloo on
CPU, NCCL on GPUs, where it has never been run.
"""

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pettingllms.runtime.interfaces import address_towards, interface_of
from pettingllms.transfer.link import Link

FILE = "file://"
_distributed: Any = dist  # which does not list all of its classes
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Group:
    """One member of the group. Creating it waits for all other members."""

    def __init__(self, link: Link, rank: int, device: torch.device) -> None:
        self.device = device
        timeout = timedelta(seconds=link.timeout)
        store = _store(link, rank, timeout)
        self._group: Any
        if device.type == "cpu":
            self._group = dist.ProcessGroupGloo(store, rank, link.num_members, timeout)
        else:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout  # noqa: SLF001 - it has no public name
            self._group = dist.ProcessGroupNCCL(store, rank, link.num_members, options)
        self._wait(self._group.allreduce([torch.ones(1, device=device)]))  # all have met

    def broadcast(self, tensor: Tensor) -> None:
        """Send a tensor from rank 0 to all others; raises if a member is gone or too slow."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._wait(self._group.broadcast([tensor], options))

    def close(self) -> None:
        """Leave the group; pending calls of other members fail."""
        self._group.abort()
        del self._group

    def _wait(self, work: Any) -> None:
        work.wait()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _store(link: Link, rank: int, timeout: timedelta) -> Any:
    if link.rendezvous.startswith(FILE):
        path = Path(link.rendezvous.removeprefix(FILE))
        store: Any = _distributed.FileStore(str(path), link.num_members)
        store.set_timeout(timeout)
        return store
    host, _, port = link.rendezvous.removeprefix("tcp://").rpartition(":")
    name = interface_of(address_towards(host))
    os.environ.update(GLOO_SOCKET_IFNAME=name, NCCL_SOCKET_IFNAME=f"={name}")
    listener = socket.create_server((host, int(port))) if rank == 0 else None
    return _distributed.TCPStore(
        host,
        int(port),
        link.num_members,
        rank == 0,
        timeout,
        wait_for_workers=False,
        master_listen_fd=None if listener is None else listener.detach(),
    )
