"""Gateways behind a router under load: latency, and whether every record is complete.

Gateways, router and clients are separate processes on loopback. The engine only waits, so all
time beyond its delay is added by us, or by the clients on a busy machine. The same sessions run
with and without the router.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pettingllms.bench.gateway_processes import (
    SPARE_SECONDS,
    Client,
    Received,
    Records,
    run_clients,
    run_gateway,
    run_router,
)
from pettingllms.errors import ClusterError

LOOPBACK = "127.0.0.1"
NUM_CLIENT_PROCESSES = 2
START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Round:
    """One round of all sessions."""

    num_calls: int
    """Calls that got a reply."""
    p50_ms: float
    """Median of the added latency: the time of a call without the engine's delay."""
    p99_ms: float
    num_lost: int
    """Calls without a reply, or without a record that its client received it."""
    num_mixed: int
    """Replies and records with the mark of another session."""
    most_in_flight: int
    """The most calls that were in the engines at once."""
    gateway_cpu_ms: float
    """CPU time of the gateways per call."""
    router_cpu_ms: float
    """CPU time of the router per call."""
    errors: dict[str, int]


@dataclass(frozen=True, slots=True)
class GatewayBench:
    """Figures of the same sessions without and with a router."""

    num_sessions: int
    num_replicas: int
    delay_seconds: float
    direct: Round
    routed: Round
    same_records: bool
    """Whether both rounds recorded equal episodes."""


class _Process:
    """A process with a pipe to it."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *args), daemon=True)
        self._process.start()
        theirs.close()

    def receive(self, seconds: float = START_SECONDS) -> Any:
        """What the process sent."""
        if not self.pipe.poll(seconds):
            raise ClusterError(f"a process of the benchmark did not answer within {seconds:g} s")
        return self.pipe.recv()

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self.pipe.close()


@contextmanager
def _running(target: Callable[..., None], *args: Any) -> Iterator[_Process]:
    process = _Process(target, *args)
    try:
        yield process
    finally:
        process.stop()


def bench_gateway(
    num_sessions: int = 2000,
    num_replicas: int = 2,
    num_calls: int = 2,
    delay: float = 30.0,
    phase: Callable[[str], None] = lambda _: None,
) -> GatewayBench:
    """Run all sessions at once, each with some calls one after another; then over a router."""
    marks = [f"session-{number}" for number in range(num_sessions)]
    parts = [marks[at::num_replicas] for at in range(num_replicas)]
    with ExitStack() as stack:
        clients = [
            stack.enter_context(_running(run_clients, delay)) for _ in range(NUM_CLIENT_PROCESSES)
        ]
        for one in clients:
            one.receive()
        phase(f"{num_sessions:,} sessions, direct")
        direct, expected = _round(parts, clients, num_calls, delay, None)
        phase(f"{num_sessions:,} sessions, over the router")
        router = stack.enter_context(_running(run_router, LOOPBACK))
        routed, found = _round(parts, clients, num_calls, delay, router)
    return GatewayBench(num_sessions, num_replicas, delay, direct, routed, found == expected)


def _round(
    parts: Sequence[Sequence[str]],
    callers: Sequence[_Process],
    num_calls: int,
    delay: float,
    router: _Process | None,
) -> tuple[Round, dict[str, str]]:
    """Run all sessions once. Returns the figures, and a hash of each session's record."""
    url = router.receive() if router is not None else ""
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(_running(run_gateway, str(at), part, delay, url))
            for at, part in enumerate(parts)
        ]
        clients: list[Client] = []
        addresses: list[tuple[str, str]] = []
        for at, gateway in enumerate(gateways):
            address, own = gateway.receive()
            clients += own
            addresses.append((str(at), address))
        before = _told(router, addresses)
        for at, caller in enumerate(callers):
            caller.pipe.send((clients[at :: len(callers)], num_calls))
        seconds = SPARE_SECONDS + delay * (num_calls + 1)
        received: list[Received] = [caller.receive(seconds + START_SECONDS) for caller in callers]
        router_cpu = _told(router, []) - before
        for gateway in gateways:
            gateway.pipe.send(None)
        records: list[Records] = [gateway.receive() for gateway in gateways]
    return figures_of(received, records, len(clients) * num_calls, delay, router_cpu)


def _told(router: _Process | None, addresses: Sequence[tuple[str, str]]) -> float:
    """Tell a router of gateways; return the CPU time that it has used."""
    if router is None:
        return 0.0
    router.pipe.send(addresses)
    return float(router.receive())


def figures_of(
    received: Sequence[Received],
    records: Sequence[Records],
    num_expected: int,
    delay: float,
    router_cpu: float,
) -> tuple[Round, dict[str, str]]:
    """The figures of a round, and a hash of each session's record."""
    seconds = [second for one in received for second in one.seconds]
    added = (np.array(seconds or [np.nan]) - delay) * 1000
    num_recorded = sum(one.num_turns for one in records)
    errors: dict[str, int] = {}
    for one in received:
        for message, number in one.errors.items():
            errors[message] = errors.get(message, 0) + number
    figures = Round(
        num_calls=len(seconds),
        p50_ms=round(float(np.percentile(added, 50)), 1),
        p99_ms=round(float(np.percentile(added, 99)), 1),
        num_lost=max(num_expected - len(seconds), abs(num_expected - num_recorded)),
        num_mixed=sum(one.num_mixed for one in received) + sum(one.num_mixed for one in records),
        most_in_flight=sum(one.most_in_flight for one in records),
        gateway_cpu_ms=round(sum(one.cpu_seconds for one in records) / num_expected * 1000, 2),
        router_cpu_ms=round(router_cpu / num_expected * 1000, 2),
        errors=errors,
    )
    return figures, {mark: digest for one in records for mark, digest in one.digests.items()}
