"""Benchmarks of the framework's overhead: rollouts, engines, learner and sandbox."""

from pettingllms.bench.rollout_bench import InstantSampler, RolloutBench, bench_rollout

__all__ = ["InstantSampler", "RolloutBench", "bench_rollout"]
