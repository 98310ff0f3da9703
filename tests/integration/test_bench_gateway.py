"""Two thousand sessions at once behind one address: every record complete, none mixed."""

import pytest

pytest.importorskip("uvicorn")

from pettingllms.bench.gateway_bench import bench_gateway


@pytest.mark.slow
def test_two_thousand_sessions_over_two_replicas_lose_and_mix_nothing() -> None:
    """With each call delayed by 10 s and all sessions at it, the engines have nearly all of their
    calls at once. Latencies depend on what else this machine does, so they are only printed."""
    found = bench_gateway(2000, 2, 3, 10.0, print)
    print(found)
    for one in (found.direct, found.routed):
        assert (one.num_lost, one.num_mixed, one.errors) == (0, 0, {})
        assert one.num_calls == 6000
        assert one.most_in_flight >= 1900
    assert found.same_records
