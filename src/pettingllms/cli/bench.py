"""`bench`: figures with the command that made them."""

import json
from dataclasses import asdict

from rich.table import Table

from pettingllms.bench import bench_rollout
from pettingllms.bench.engine_bench import bench_engine
from pettingllms.bench.sandbox_bench import bench_sandbox
from pettingllms.cli.console import console


def print_rollout_bench(num_many: int, repeats: int, as_json: bool) -> None:
    """Run the rollout benchmark and print it."""
    if as_json:
        console.out(json.dumps(asdict(bench_rollout(num_many, repeats=repeats))), highlight=False)
        return
    with console.status(f"playing tic-tac-toe, {num_many:,} episodes at once"):
        result = bench_rollout(num_many, repeats=repeats)
    table = Table("tic-tac-toe, a sampler that answers at once", "", title="bench rollout")
    table.add_row(f"a turn at {result.num_few:,} episodes", f"{result.few_us_per_turn:.0f} µs")
    table.add_row(f"a turn at {result.num_many:,} episodes", f"{result.many_us_per_turn:.0f} µs")
    table.add_row("ratio", f"{result.ratio:.2f}")
    table.add_row("episodes that waited for a reply at once", f"{result.at_once:,}")
    table.add_row("memory an episode, at the peak", _kib(result.peak_bytes_per_episode))
    table.add_row("memory an episode, once over", _kib(result.held_bytes_per_episode))
    console.print(table)


def print_engine_bench(model: str, num_requests: int, repeats: int, as_json: bool) -> None:
    """Run the benchmark of the engines and print it."""
    if as_json:
        result = bench_engine(model, num_requests, repeats)
        console.out(json.dumps(asdict(result)), highlight=False)
        return
    with console.status("starting") as status:
        result = bench_engine(model, num_requests, repeats, status.update)
    table = Table(
        f"{result.model}, {result.num_requests} replies at once",
        "ours",
        "bare",
        "ratio",
        title="bench engine",
    )
    table.add_row(
        "sampling: our rollouts, bare vLLM",
        f"{result.rollout_tokens_per_second:,.0f} tokens/s",
        f"{result.vllm_tokens_per_second:,.0f} tokens/s",
        f"{result.rollout_ratio:.2f}",
    )
    table.add_row(
        "learning: our learner, bare PyTorch",
        f"{result.learner_tokens_per_second:,.0f} tokens/s",
        f"{result.torch_tokens_per_second:,.0f} tokens/s",
        f"{result.learner_ratio:.2f}",
    )
    console.print(table)


def print_sandbox_bench(num_programs: int, tier: str, as_json: bool) -> None:
    """Run the benchmark of the sandbox and print it."""
    if as_json:
        console.out(json.dumps(asdict(bench_sandbox(num_programs, tier))), highlight=False)
        return
    with console.status(f"running {num_programs:,} small programs, three times"):
        result = bench_sandbox(num_programs, tier)
    table = Table(f"{result.tier}, {result.num_cores} cores", "", title="bench sandbox")
    table.add_row("opened and tried", f"{result.open_seconds:.2f} s")
    table.add_row("programs a second, cold", f"{result.cold_per_second:.0f}")
    table.add_row("programs a second, warm", f"{result.warm_per_second:.0f}")
    table.add_row("the same while one hangs", f"{result.hanging_per_second:.0f}")
    table.add_row("a program alone, cold", f"{result.cold_ms:.0f} ms")
    table.add_row("a program alone, warm", f"{result.warm_ms:.0f} ms")
    table.add_row("processor time of a program", f"{result.cpu_ms:.0f} ms")
    console.print(table)


def _kib(num_bytes: int) -> str:
    return f"{num_bytes / 1024:.1f} KiB"
