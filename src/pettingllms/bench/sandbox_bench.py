"""Sandbox throughput and latency for small programs.

Cold: a sandbox starts when its program arrives. Warm: started sandboxes wait in a pool, as in a
run. The pool refills while programs run, so the warm rate still includes start-up; only the latency
of a single program does not.
"""

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pettingllms.sandbox import Limits, open_sandbox, python
from pettingllms.sandbox.warm_pool import NUM_CORES, WarmSandbox

REFILL_SECONDS = 0.3
"""Time for the next warm sandbox to start."""
HANG_SECONDS = 600.0
NUM_LATENCY_RUNS = 9
"""Programs for the latency, run one at a time."""


@dataclass(frozen=True, slots=True)
class SandboxBench:
    """Programs per second, latency of a single program, and CPU time per program."""

    tier: str
    num_programs: int
    num_cores: int
    open_seconds: float
    """Time to open and verify a sandbox."""
    cold_per_second: float
    warm_per_second: float
    hanging_per_second: float
    """Warm rate while one program hangs."""
    cold_ms: float
    warm_ms: float
    """Median latency of a single program."""
    cpu_ms: float
    """CPU time per program, including sandbox start-up and overhead."""


def bench_sandbox(num_programs: int = 200, tier: str = "") -> SandboxBench:
    """Measure a sandbox tier, or the best available one."""
    start = time.perf_counter()
    warm = open_sandbox(tier)
    opened = time.perf_counter() - start
    cold = WarmSandbox(warm.tier, num_warm=0)
    cold_rate, _ = _rate(cold, num_programs)
    warm_rate, cpu = _rate(warm, num_programs)
    with ThreadPoolExecutor(1) as background:
        hung = WarmSandbox(warm.tier)
        hanging = background.submit(
            hung.run, python("import time; time.sleep(1e6)"), Limits(seconds=HANG_SECONDS)
        )
        hanging_rate, _ = _rate(hung, num_programs)
        hung.close()
        hanging.result()
    found = SandboxBench(
        tier=warm.tier.name,
        num_programs=num_programs,
        num_cores=NUM_CORES,
        open_seconds=round(opened, 2),
        cold_per_second=round(cold_rate, 1),
        warm_per_second=round(warm_rate, 1),
        hanging_per_second=round(hanging_rate, 1),
        cold_ms=round(_latency(cold), 1),
        warm_ms=round(_latency(warm), 1),
        cpu_ms=round(cpu, 1),
    )
    cold.close()
    return found


def _rate(sandbox: WarmSandbox, num_programs: int) -> tuple[float, float]:
    """Programs per second, and milliseconds of CPU time per program."""
    start, used = time.perf_counter(), _cpu_seconds()
    with ThreadPoolExecutor(2 * NUM_CORES) as threads:
        list(threads.map(lambda number: _one(sandbox, number), range(num_programs)))
    seconds = time.perf_counter() - start
    return num_programs / seconds, (_cpu_seconds() - used) / num_programs * 1000


def _latency(sandbox: WarmSandbox) -> float:
    found = []
    for number in range(NUM_LATENCY_RUNS):
        time.sleep(REFILL_SECONDS)
        start = time.perf_counter()
        _one(sandbox, number)
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1000


def _one(sandbox: WarmSandbox, number: int) -> None:
    outcome = sandbox.run(python(f"print(sum(range({number})))"), Limits(seconds=60))
    assert outcome.stdout == f"{sum(range(number))}\n", outcome  # noqa: S101 - the sandbox would be broken


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
