"""Overhead per turn with few and many concurrent episodes, and memory per episode."""

import asyncio
import statistics
import time
import tracemalloc
from collections import deque
from dataclasses import dataclass

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import make_env
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import ByteRenderer, ScriptedSampler
from pettingllms.types import Episode, Sample, SampleRequest

NUM_FEW = 100


class InstantSampler(ScriptedSampler):
    """Replies on the next loop iteration, so that all episodes run concurrently."""

    num_waiting = max_waiting = 0

    async def sample(self, request: SampleRequest) -> list[Sample]:
        self.num_waiting += 1
        self.max_waiting = max(self.max_waiting, self.num_waiting)
        await asyncio.sleep(0)
        self.num_waiting -= 1
        return await super().sample(request)


@dataclass(frozen=True, slots=True)
class RolloutBench:
    """Time per turn with few and many concurrent episodes, and memory per episode."""

    num_few: int
    num_many: int
    at_once: int
    """Largest number of episodes that waited for a reply at the same time."""
    few_us_per_turn: float
    many_us_per_turn: float
    ratio: float
    peak_bytes_per_episode: int
    held_bytes_per_episode: int


def bench_rollout(num_many: int = 10_000, repeats: int = 5) -> RolloutBench:
    """Run tic-tac-toe with `NUM_FEW` and `num_many` concurrent episodes, alternating.

    Both run enough episodes to make start-up time negligible.
    """
    total_few = max(NUM_FEW, num_many // 5)
    _run(total_few, NUM_FEW)
    few, many = [], []
    for _ in range(repeats):
        few.append(_run(total_few, NUM_FEW)[:2])
        many.append(_run(num_many, num_many)[:2])
    peak, held = _memory(1000)
    return RolloutBench(
        num_few=NUM_FEW,
        num_many=num_many,
        at_once=many[0][1],
        few_us_per_turn=round(statistics.median(cost for cost, _ in few), 1),
        many_us_per_turn=round(statistics.median(cost for cost, _ in many), 1),
        ratio=round(statistics.median(m / f for (m, _), (f, _) in zip(many, few, strict=True)), 3),
        peak_bytes_per_episode=peak,
        held_bytes_per_episode=held,
    )


def _run(num_episodes: int, at_once: int) -> tuple[float, int, deque[Episode]]:
    """Microseconds per turn, the largest number of waiting episodes, and the last episodes.

    Memory holds as many episodes as run concurrently, like a worker's batch.
    """
    env = make_env("tic_tac_toe-v1", num_tasks=num_episodes)
    sampler = InstantSampler(env, "random")
    player = Player("shared", sampler, ByteRenderer(), reads_state=True)
    config = RolloutConfig(type="linear", num_samples=1, max_concurrent=at_once)
    worker = Worker(env, dict.fromkeys(env.roles, player), config, RewardConfig())
    held: deque[Episode] = deque(maxlen=at_once)
    num_turns = 0

    def deliver(episode: Episode) -> None:
        nonlocal num_turns
        num_turns += len(episode.turns)
        held.append(episode)

    start = time.perf_counter()
    asyncio.run(worker.run(env.tasks("train"), 0, deliver))
    cost = (time.perf_counter() - start) / num_turns * 1e6
    return cost, sampler.max_waiting, held


def _memory(num_episodes: int) -> tuple[int, int]:
    """Bytes per episode at the peak, and bytes per finished episode."""
    tracemalloc.start()
    _, _, episodes = _run(num_episodes, num_episodes)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak // len(episodes), held // len(episodes)
