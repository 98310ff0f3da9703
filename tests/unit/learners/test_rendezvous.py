"""Ranks meet at the address of a node, and report it if they do not."""

import multiprocessing
import socket
from contextlib import closing
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pettingllms.errors import ClusterError
from pettingllms.learners.rendezvous import Member, join, listen
from pettingllms.runtime.ports import listeners

HERE = "127.0.0.1"


def meet(
    rank: int,
    meeting: str,
    listener: socket.socket | None,
    inherited: set[tuple[str, int]],
    told: Any,
) -> None:
    """One rank; it tells the sum of the ranks, and where it listens."""
    join(meeting, Member(rank, 2, HERE, 30.0), "gloo", listener)
    total = torch.tensor([rank + 1.0])
    torch.distributed.all_reduce(total)
    told.put((total.item(), sorted({address for address, _ in own_listeners() - inherited})))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def own_listeners() -> set[tuple[str, int]]:
    """Addresses and ports at which this process listens."""
    own = multiprocessing.current_process().pid
    return {(one.address, one.port) for one in listeners() if one.pid == own}


def test_two_ranks_meet_and_listen_on_their_address_only() -> None:
    spawned = multiprocessing.get_context("fork")
    told = spawned.Queue()
    inherited = own_listeners()  # of earlier tests in this process
    listener = listen(HERE)
    meeting = f"{HERE}:{listener.getsockname()[1]}"
    ranks = [
        spawned.Process(
            target=meet, args=(rank, meeting, None if rank else listener, inherited, told)
        )
        for rank in (0, 1)
    ]
    for rank in ranks:
        rank.start()
    listener.close()  # rank 0 has its copy
    found = [told.get(timeout=60) for _ in ranks]
    for rank in ranks:
        rank.join(30)
    assert [total for total, _ in found] == [3.0, 3.0]
    assert all(places in ([], [HERE]) for _, places in found), found
    assert any(places for _, places in found)


def test_a_rank_that_is_alone_names_both_addresses() -> None:
    with closing(listen(HERE)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ClusterError, match=rf"rank 1 at {HERE}.*rank 0 at {HERE}, port {port}"):
        join(f"{HERE}:{port}", Member(1, 2, HERE, 1.0), "gloo")


def test_rank_0_names_the_ranks_that_did_not_come() -> None:
    listener = listen(HERE)
    meeting = f"{HERE}:{listener.getsockname()[1]}"
    with pytest.raises(ClusterError, match=rf"rank 0 at {HERE} waited 1 s for rank 1"):
        join(meeting, Member(0, 2, HERE, 1.0), "gloo", listener)
