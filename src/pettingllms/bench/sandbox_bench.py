"""How many small programs a second the sandbox runs, from start to verdict.

Cold: each sandbox is started when its program comes. Warm: sandboxes wait, as they do in a run; the
next ones start while programs run, so the rate is that of starting and running together, and only
the delay of a program that comes alone is that of running.
"""

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pettingllms.sandbox import Limits, open_sandbox, python
from pettingllms.sandbox.warm_pool import NUM_CORES, WarmSandbox

PAUSE_SECONDS = 0.3
"""Enough for the next sandbox to be ready."""
HANG_SECONDS = 600.0
NUM_ALONE = 9
"""Programs that come alone."""


@dataclass(frozen=True, slots=True)
class SandboxBench:
    """Programs a second, the delay of one alone, and what one costs."""

    tier: str
    num_programs: int
    num_cores: int
    open_seconds: float
    """From nothing to a sandbox that was tried and holds."""
    cold_per_second: float
    warm_per_second: float
    hanging_per_second: float
    """Warm, while one program hangs."""
    cold_ms: float
    warm_ms: float
    """From start to verdict of one program alone, the median."""
    cpu_ms: float
    """Processor time of a program, the start of its sandbox and our part included."""


def bench_sandbox(num_programs: int = 200, tier: str = "") -> SandboxBench:
    """Measure a tier of the sandbox, or the best one here."""
    start = time.perf_counter()
    warm = open_sandbox(tier)
    opened = time.perf_counter() - start
    cold = WarmSandbox(warm.tier, num_warm=0)
    cold_rate, _ = _rate(cold, num_programs)
    warm_rate, cpu = _rate(warm, num_programs)
    with ThreadPoolExecutor(1) as aside:
        hung = WarmSandbox(warm.tier)
        hanging = aside.submit(
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
        cold_ms=round(_delay(cold), 1),
        warm_ms=round(_delay(warm), 1),
        cpu_ms=round(cpu, 1),
    )
    cold.close()
    return found


def _rate(sandbox: WarmSandbox, num_programs: int) -> tuple[float, float]:
    """Programs a second, and milliseconds of processor time each."""
    start, used = time.perf_counter(), _processor_seconds()
    with ThreadPoolExecutor(2 * NUM_CORES) as threads:
        list(threads.map(lambda number: _one(sandbox, number), range(num_programs)))
    seconds = time.perf_counter() - start
    return num_programs / seconds, (_processor_seconds() - used) / num_programs * 1000


def _delay(sandbox: WarmSandbox) -> float:
    found = []
    for number in range(NUM_ALONE):
        time.sleep(PAUSE_SECONDS)
        start = time.perf_counter()
        _one(sandbox, number)
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1000


def _one(sandbox: WarmSandbox, number: int) -> None:
    outcome = sandbox.run(python(f"print(sum(range({number})))"), Limits(seconds=60))
    assert outcome.stdout == f"{sum(range(number))}\n", outcome  # noqa: S101 - ours would be broken


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
