"""`bench rollout --workers`: run and print the benchmark of rollout workers."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from pettingllms.bench.workers_bench import bench_workers
from pettingllms.cli.console import console


def print_workers_bench(model: str, numbers: Sequence[int], num_tasks: int, as_json: bool) -> None:
    """Run the benchmark of rollout workers and print it."""
    if as_json:
        found = bench_workers(model, numbers, num_tasks)
        console.out(json.dumps([asdict(one) for one in found]), highlight=False)
        return
    with console.status("starting") as status:
        found = bench_workers(model, numbers, num_tasks, phase=status.update)
    table = Table(
        "workers",
        "turns",
        "prompt tokens",
        "turns per second",
        "CPU per turn",
        "driver",
        "credit and metrics",
        "batch for learners",
        title="bench rollout, an engine that only waits",
    )
    for one in found:
        table.add_row(
            f"{one.num_workers}",
            f"{one.num_turns:,}",
            f"{one.prompt_tokens:,.0f}",
            f"{one.turns_per_second:,.0f}",
            f"{one.total_us_per_turn:,.0f} µs",
            f"{one.driver_us_per_turn:,.0f} µs",
            f"{one.credit_us_per_turn:,.0f} µs",
            f"{one.send_us_per_turn:,.0f} µs",
        )
    console.print(table)
