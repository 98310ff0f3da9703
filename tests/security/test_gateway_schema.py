"""The gateway answers arbitrary requests without an internal error."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

schemathesis = pytest.importorskip("schemathesis")

from gateways import Served, served
from hypothesis import HealthCheck, Phase, given, settings

from pettingllms.gateway.openapi import description
from pettingllms.gateway.rate_limits import Bounds
from pettingllms.gateway.session import Limits

ROUTES = [path for path, item in description()["paths"].items() if "post" in item]


@pytest.fixture(scope="module")
def gate() -> Iterator[Served]:
    """A gateway in a separate thread."""
    found: list[Served] = []
    ready, over = threading.Event(), threading.Event()

    async def work(gate: Served) -> None:
        found.append(gate)
        ready.set()
        await asyncio.to_thread(over.wait)

    bounds, limits = Bounds(calls_per_second=1e6), Limits(max_calls=10**9)
    thread = threading.Thread(target=lambda: served(work, bounds=bounds, limits=limits))
    thread.start()
    ready.wait()
    yield found[0]
    over.set()
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in ROUTES if path.startswith("/v1")])
def test_no_request_causes_an_internal_error(path: str, gate: Served) -> None:
    operation = schemathesis.openapi.from_dict(description())[path]["POST"]
    seen: dict[int, int] = {}

    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def attack(case: Any) -> None:
        rewards = path.endswith("/rewards")
        key = gate.agents.reward_key if rewards else gate.agents.keys["planner"]
        headers = {"Authorization": f"Bearer {key}"}
        answer = case.call(base_url=gate.gateway.url, headers=headers, timeout=60)
        seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, answer.text

    attack()
    print(path, seen)
    assert sum(seen.values()) >= 60
    assert 401 not in seen
