"""`bench`: run and print the benchmarks of the system's overhead."""

import json
from dataclasses import asdict

from rich.table import Table

from pettingllms.bench import bench_rollout
from pettingllms.bench.engine_bench import bench_engine
from pettingllms.bench.sampling_bench import bench_sampling
from pettingllms.bench.sandbox_bench import bench_sandbox
from pettingllms.cli.console import console
from pettingllms.config.engines import Dtype


def print_rollout_bench(num_many: int, repeats: int, as_json: bool) -> None:
    """Run the rollout benchmark and print it."""
    if as_json:
        console.out(json.dumps(asdict(bench_rollout(num_many, repeats=repeats))), highlight=False)
        return
    with console.status(f"playing tic-tac-toe, {num_many:,} episodes in parallel"):
        result = bench_rollout(num_many, repeats=repeats)
    table = Table("tic-tac-toe with an instant sampler", "", title="bench rollout")
    table.add_row(
        f"time per turn with {result.num_few:,} episodes", f"{result.few_us_per_turn:.0f} µs"
    )
    table.add_row(
        f"time per turn with {result.num_many:,} episodes", f"{result.many_us_per_turn:.0f} µs"
    )
    table.add_row("ratio", f"{result.ratio:.2f}")
    table.add_row("episodes waiting for a reply in parallel", f"{result.at_once:,}")
    table.add_row("peak memory per episode", _kib(result.peak_bytes_per_episode))
    table.add_row("memory per finished episode", _kib(result.held_bytes_per_episode))
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
        f"{result.model}, {result.num_requests} replies in parallel",
        "ours",
        "plain",
        "ratio",
        title="bench engine",
    )
    table.add_row(
        "sampling: rollouts, plain vLLM",
        f"{result.rollout_tokens_per_second:,.0f} tokens/s",
        f"{result.vllm_tokens_per_second:,.0f} tokens/s",
        f"{result.rollout_ratio:.2f}",
    )
    table.add_row(
        "training: learner, plain PyTorch",
        f"{result.learner_tokens_per_second:,.0f} tokens/s",
        f"{result.torch_tokens_per_second:,.0f} tokens/s",
        f"{result.learner_ratio:.2f}",
    )
    console.print(table)


def print_sampling_bench(
    model: str, dtype: Dtype, num_requests: int, num_adapters: int, repeats: int, as_json: bool
) -> None:
    """Run the benchmark of LoRA sampling on CPU and print it."""
    arguments = (model, dtype, num_requests, num_adapters, repeats)
    if as_json:
        console.out(json.dumps(asdict(bench_sampling(*arguments))), highlight=False)
        return
    with console.status("starting") as status:
        result = bench_sampling(*arguments, status.update)
    title = f"{result.model}, {result.dtype}, {result.num_requests} replies in parallel"
    table = Table(title, "tokens per CPU-second", title="bench sampling")
    table.add_row("LoRA, our kernels", f"{result.packed:,.0f}")
    table.add_row("LoRA, vLLM's kernels", f"{result.vllm:,.0f}")
    table.add_row("no adapter", f"{result.base:,.0f}")
    table.add_row("ours over vLLM's", f"{result.ratio:.2f}")
    table.add_row(
        f"log-prob difference ({result.equal_share:.0%} of the replies are equal)",
        f"{result.logprob_difference:.1g}",
    )
    console.print(table)


def print_publish_bench(
    model: str, dtype: Dtype, num_ranks: int, num_replicas: int, repeats: int, as_json: bool
) -> None:
    """Run the benchmark of publishing a full model and print it."""
    from pettingllms.bench.publish_bench import bench_publish

    arguments = (model, dtype, num_ranks, num_replicas, repeats)
    if as_json:
        console.out(json.dumps(asdict(bench_publish(*arguments))), highlight=False)
        return
    with console.status("starting") as status:
        result = bench_publish(*arguments, status.update)
    title = f"{result.model}, {result.dtype}, {num_ranks} ranks to {num_replicas} engines"
    table = Table(title, "stream", "files", title="bench publish")
    sides = (result.stream, result.files)
    table.add_row("seconds", *(f"{side.seconds:.1f}" for side in sides))
    table.add_row("CPU-seconds", *(f"{side.cpu_seconds:.1f}" for side in sides))
    table.add_row(
        "peak memory of ranks, MiB",
        *(", ".join(f"{peak:.0f}" for peak in side.peak_mib) for side in sides),
    )
    table.add_row("files over stream", f"{result.ratio:.2f}", "")
    console.print(table)


def print_adapters_bench(
    model: str, dtype: Dtype, num_policies: int, repeats: int, as_json: bool
) -> None:
    """Run the benchmark of several LoRA policies and print it."""
    from pettingllms.bench.adapters_bench import bench_adapters

    arguments = (model, dtype, num_policies, repeats)
    if as_json:
        console.out(json.dumps(asdict(bench_adapters(*arguments))), highlight=False)
        return
    with console.status("starting") as status:
        result = bench_adapters(*arguments, status.update)
    title = f"{result.model}, {result.dtype}, {result.num_replies} replies per step"
    table = Table(title, "one policy", f"{num_policies} policies", "ratio", title="bench adapters")
    for name, ratio in result.ratio.items():
        costs = (f"{side[name]:.2f} CPU-ms per token" for side in (result.one, result.several))
        table.add_row(name, *costs, f"{ratio:.2f}")
    console.print(table)


def print_learner_bench(model: str, repeats: int, as_json: bool) -> None:
    """Run the benchmark of the learner and print it."""
    from pettingllms.bench.learner_bench import bench_learner  # imports torch

    if as_json:
        found = bench_learner(model, repeats)
        console.out(json.dumps([asdict(one) for one in found]), highlight=False)
        return
    with console.status("starting") as status:
        found = bench_learner(model, repeats, status.update)
    table = Table(
        "batch", "learner", "tokens read", "CPU-seconds", "speedup", "cosine", title="bench learner"
    )
    for one in found:
        table.add_row(
            one.case,
            one.variant,
            f"{one.tokens_read:,} ({one.tokens_read / one.distinct_tokens:.2f} x distinct)",
            f"{one.cpu_seconds:.2f}",
            f"{one.speedup:.2f}",
            f"{one.cosine:.5f}",
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
    table.add_row("time to start", f"{result.open_seconds:.2f} s")
    table.add_row("programs per second, cold", f"{result.cold_per_second:.0f}")
    table.add_row("programs per second, warm", f"{result.warm_per_second:.0f}")
    table.add_row("programs per second while one hangs", f"{result.hanging_per_second:.0f}")
    table.add_row("latency, cold", f"{result.cold_ms:.0f} ms")
    table.add_row("latency, warm", f"{result.warm_ms:.0f} ms")
    table.add_row("CPU time per program", f"{result.cpu_ms:.0f} ms")
    console.print(table)


def _kib(num_bytes: int) -> str:
    return f"{num_bytes / 1024:.1f} KiB"
