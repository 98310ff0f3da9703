"""What a turn costs, with few and with many episodes at once, and what an episode holds."""

import asyncio
import statistics
import time
import tracemalloc
from collections import deque
from dataclasses import dataclass

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import make_env
from pettingllms.rollout import Player, Worker
from pettingllms.rollout.scripted import ByteRenderer, ScriptedSampler
from pettingllms.types import Episode, Sample, SampleRequest

NUM_FEW = 100


class InstantSampler(ScriptedSampler):
    """Answers as soon as the loop comes round again, so that all episodes are under way at once."""

    waiting = most_waiting = 0

    async def sample(self, request: SampleRequest) -> list[Sample]:
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        await asyncio.sleep(0)
        self.waiting -= 1
        return await super().sample(request)


@dataclass(frozen=True, slots=True)
class RolloutBench:
    """What a turn costs with few and with many episodes at once, and an episode's memory."""

    num_few: int
    num_many: int
    at_once: int
    """Episodes that really waited for a reply at the same time."""
    few_us_per_turn: float
    many_us_per_turn: float
    ratio: float
    peak_bytes_per_episode: int
    held_bytes_per_episode: int


def bench_rollout(num_many: int = 10_000, repeats: int = 5) -> RolloutBench:
    """Play tic-tac-toe with `NUM_FEW` and `num_many` episodes at once, taking turns.

    Both play enough episodes that starting up does not count.
    """
    total_few = max(NUM_FEW, num_many // 5)
    _play(total_few, NUM_FEW)
    few, many = [], []
    for _ in range(repeats):
        few.append(_play(total_few, NUM_FEW)[:2])
        many.append(_play(num_many, num_many)[:2])
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


def _play(num_episodes: int, at_once: int) -> tuple[float, int, deque[Episode]]:
    """Microseconds a turn, the most episodes that waited for a reply at once, and the last ones.

    As many episodes are held as are under way, as a worker would hold a batch.
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
    return cost, sampler.most_waiting, held


def _memory(num_episodes: int) -> tuple[int, int]:
    """Bytes an episode at the peak, and bytes that a finished episode keeps."""
    tracemalloc.start()
    _, _, episodes = _play(num_episodes, num_episodes)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak // len(episodes), held // len(episodes)
