"""The benchmark of gateways checks records: a lost or mixed one is counted."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from pettingllms.bench.gateway_bench import bench_gateway, figures_of
from pettingllms.bench.gateway_processes import Received, Records, records_of
from pettingllms.rollouts.scripted import text_ids
from pettingllms.types import Credit, Episode, Failed, Task, Turn, user


def test_sessions_behind_a_router_lose_and_mix_nothing() -> None:
    found = bench_gateway(60, 2, 2, 0.5)
    for one in (found.direct, found.routed):
        assert (one.num_calls, one.num_lost, one.num_mixed, one.errors) == (120, 0, 0, {})
        assert 0 < one.p50_ms <= one.p99_ms
        assert one.gateway_cpu_ms > 0
    assert found.routed.router_cpu_ms > 0
    assert found.same_records
    assert 30 <= found.routed.most_in_flight <= 60


def session(mark: str, *turns: tuple[str, str, bool]) -> Any:
    """A closed session with turns of a prompt, a reply, and whether it arrived."""
    made = [
        Turn("agent", "policy", (user(prompt),), text_ids(prompt), text_ids(reply), None, reply, 0,
             credit=Credit(None if arrived else Failed("undelivered", "environment")))
        for prompt, reply, arrived in turns
    ]  # fmt: skip
    return SimpleNamespace(episode=Episode(mark, "bench", Task(mark), 0, made))


def test_lost_and_mixed_records_are_counted() -> None:
    fine = ("session-1 asks", "session-1 says", True)
    lost = ("session-1 asks", "session-1 says", False)
    mixed = [("session-2 asks", "session-1 says", True), ("session-1 asks", "session-2", True)]
    found = records_of([session("session-1", fine, lost, *mixed)], 1, 0.5)
    assert (found.num_turns, found.num_mixed) == (3, 2)
    other = records_of([session("session-1", fine, fine, *mixed)], 1, 0.5)
    assert other.digests != found.digests
    received = Received([1.5, 1.25, 1.25, 2.0], 0, {})
    figures, _ = figures_of([received], [found], 4, 1.0, 0.25)
    assert (figures.num_lost, figures.num_mixed) == (1, 2)
    assert (figures.p50_ms, figures.gateway_cpu_ms, figures.router_cpu_ms) == (375, 125, 62.5)
    silent = Received([1.0, 1.0], 1, {"EOFError": 2})
    whole = Records(4, 0, {}, 1, 0.5)
    figures, _ = figures_of([silent], [whole], 4, 1.0, 0.25)
    assert (figures.num_lost, figures.num_mixed, figures.errors) == (2, 1, {"EOFError": 2})
