"""How the ranks of a learner meet: through a file on one machine, else by their nodes' addresses.

On several machines, the store and the process group listen on the node's address only. Ranks first
connect to each other by plain sockets, since gloo and NCCL would wait for half an hour in silence.
"""

import os
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from pettingllms.errors import ClusterError
from pettingllms.runtime.interfaces import interface_of

FILE = "file://"
MEET_SECONDS = 120.0
RETRY_SECONDS = 0.2
ADVICE = (
    "ranks on several nodes connect to each other on arbitrary TCP ports: open them between the "
    "nodes, and check the address that each node passed to `ray start --node-ip-address`"
)


@dataclass(frozen=True, slots=True)
class Member:
    """A rank among the ranks of its learner."""

    rank: int
    num_ranks: int
    address: str = ""
    """Address of its node; empty on one machine."""
    seconds: float = MEET_SECONDS

    def error(self, what: str) -> ClusterError:
        """An error that names this rank and its address."""
        return ClusterError(f"rank {self.rank} at {self.address} {what}; {ADVICE}")


def file_rendezvous() -> str:
    """A file where the ranks of one machine meet; it opens no port."""
    return f"{FILE}{tempfile.mkdtemp(prefix='pettingllms-ranks-')}/store"


def listen(address: str) -> socket.socket:
    """A socket that listens on a free port of one address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=4096)


def join(meeting: str, member: Member, backend: str, listener: socket.socket | None = None) -> None:
    """Join the process group of all ranks. Rank 0 passes the socket that it listens on."""
    if meeting.startswith(FILE):
        os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
        dist.init_process_group(
            backend, init_method=meeting, rank=member.rank, world_size=member.num_ranks
        )
        return
    name = interface_of(member.address)
    # NCCL takes a prefix; "=" asks for this very name.
    os.environ.update(GLOO_SOCKET_IFNAME=name, NCCL_SOCKET_IFNAME=f"={name}")
    store = _store(meeting, member, listener)
    _meet(store, member)
    dist.init_process_group(backend, store=store, rank=member.rank, world_size=member.num_ranks)


def _store(meeting: str, member: Member, listener: socket.socket | None) -> Any:
    host, _, port = meeting.rpartition(":")
    if listener is None:
        _connect(host, int(port), "rank 0", member)
    return TCPStore(
        host,
        int(port),
        member.num_ranks,
        is_master=listener is not None,
        timeout=timedelta(seconds=member.seconds),
        wait_for_workers=False,
        master_listen_fd=None if listener is None else listener.detach(),
    )


def _meet(store: Any, member: Member) -> None:
    """Check that this rank can connect to all others, and they to this one."""
    with closing(listen(member.address)) as server:
        port = server.getsockname()[1]
        store.set(f"at/{member.rank}", f"{member.address} {port}")
        for other in range(member.num_ranks):
            if other != member.rank:
                host, at = _published(store, other, member)
                _connect(host, at, f"rank {other}", member)
        store.set(f"met/{member.rank}", "yes")
        _wait(store, [f"met/{rank}" for rank in range(member.num_ranks)], member)


def _published(store: Any, rank: int, member: Member) -> tuple[str, int]:
    _wait(store, [f"at/{rank}"], member)
    host, port = store.get(f"at/{rank}").decode().split()
    return host, int(port)


def _wait(store: Any, keys: Sequence[str], member: Member) -> None:
    try:
        store.wait(list(keys), timedelta(seconds=member.seconds))
    except dist.DistError as error:
        missing = ", ".join(key.partition("/")[2] for key in keys if not store.check([key]))
        raise member.error(
            f"waited {member.seconds:g} s for rank {missing or '0'}, which did not connect"
        ) from error


def _connect(host: str, port: int, who: str, member: Member) -> None:
    """Connect once, and try again until the time is up: the other rank may still start."""
    end = time.monotonic() + member.seconds
    while True:
        left = max(RETRY_SECONDS, end - time.monotonic())
        try:
            with socket.create_connection((host, port), left, (member.address, 0)):
                return
        except OSError as error:
            if time.monotonic() + RETRY_SECONDS >= end:
                raise member.error(
                    f"could not connect to {who} at {host}, port {port}, within "
                    f"{member.seconds:g} s ({error})"
                ) from error
        time.sleep(RETRY_SECONDS)
