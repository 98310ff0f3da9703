"""Benchmarks that anyone can run: what the system itself costs."""

from pettingllms.bench.rollout_bench import InstantSampler, RolloutBench, bench_rollout

__all__ = ["InstantSampler", "RolloutBench", "bench_rollout"]
