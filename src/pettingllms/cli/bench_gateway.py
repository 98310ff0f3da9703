"""`bench gateway`: run and print the benchmark of gateways behind a router."""

import json
from dataclasses import asdict

from rich.table import Table

from pettingllms.bench.gateway_bench import bench_gateway
from pettingllms.cli.console import console


def print_gateway_bench(
    num_sessions: int, num_replicas: int, num_calls: int, delay: float, as_json: bool
) -> None:
    """Run the benchmark of gateways and print it."""
    arguments = (num_sessions, num_replicas, num_calls, delay)
    if as_json:
        console.out(json.dumps(asdict(bench_gateway(*arguments))), highlight=False)
        return
    with console.status("starting") as status:
        result = bench_gateway(*arguments, phase=status.update)
    sides = (result.direct, result.routed)
    title = f"{num_sessions:,} sessions, {num_replicas} gateways, engine delay {delay:g} s"
    table = Table(title, "direct", "over the router", title="bench gateway")
    table.add_row("calls", *(f"{side.num_calls:,}" for side in sides))
    table.add_row("most calls in flight", *(f"{side.most_in_flight:,}" for side in sides))
    table.add_row("added latency, p50", *(f"{side.p50_ms:,.1f} ms" for side in sides))
    table.add_row("added latency, p99", *(f"{side.p99_ms:,.1f} ms" for side in sides))
    table.add_row("CPU of gateways per call", *(f"{side.gateway_cpu_ms:.2f} ms" for side in sides))
    table.add_row("CPU of the router per call", "", f"{result.routed.router_cpu_ms:.2f} ms")
    table.add_row("lost records", *(str(side.num_lost) for side in sides))
    table.add_row("mixed records", *(str(side.num_mixed) for side in sides))
    table.add_row("same records", "", "yes" if result.same_records else "no")
    console.print(table)
    for side in sides:
        for message, number in side.errors.items():
            console.print(f"{number} calls: {message}", markup=False)
