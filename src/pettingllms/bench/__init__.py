"""Benchmarks that anyone can run: what the system itself costs."""

from pettingllms.bench.rollout import InstantSampler, RolloutBench, bench_rollout

__all__ = ["InstantSampler", "RolloutBench", "bench_rollout"]
