"""Rollout workers under Ray, with long prompts and an engine that only waits.

Sampling costs nothing here, so what remains is the framework: rendering and tokenizing in workers,
and the driver's share of each turn.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms.algos import make_algorithm_for
from pettingllms.bench.cpu_time import cpu_seconds
from pettingllms.cluster.inference_team import inference_team
from pettingllms.config import RunConfig, parse_config
from pettingllms.learners.batches import turns_of
from pettingllms.learners.deferred import units_of
from pettingllms.runs.metrics import episode_metrics
from pettingllms.runs.summary import summarize
from pettingllms.types import Episode

ENGINE = "pettingllms.bench.delayed_engine:DelayedEngine"
ENVIRONMENT = "pettingllms.bench.long_prompts:LongPrompts"
WARM_UP = 8
"""Tasks before the clock starts."""


@dataclass(frozen=True, slots=True)
class WorkersBench:
    """Figures of one number of workers."""

    num_workers: int
    num_episodes: int
    num_turns: int
    prompt_tokens: float
    """Mean length of the prompts."""
    turns_per_second: float
    total_us_per_turn: float
    """CPU time of all processes per turn: workers, engine, Ray and driver."""
    driver_us_per_turn: float
    """CPU time of the driver's process per turn, during sampling."""
    credit_us_per_turn: float
    """The same for credit assignment and metrics."""
    send_us_per_turn: float
    """The same for handing the batch to learners."""


def bench_workers(
    model: str,
    numbers: Sequence[int] = (1, 2),
    num_tasks: int = 64,
    num_samples: int = 8,
    num_words: int = 4030,
    phase: Callable[[str], None] = lambda _: None,
) -> list[WorkersBench]:
    """Play the same episodes with each number of workers; 0 plays in the driver."""
    found = []
    for number in numbers:
        phase(f"{number} rollout workers")
        config = bench_config(model, number, num_tasks, num_samples, num_words)
        found.append(asyncio.run(_bench(config, number)))
    return found


def bench_config(
    model: str,
    num_workers: int,
    num_tasks: int,
    num_samples: int,
    num_words: int,
    **sections: Mapping[str, Any],
) -> RunConfig:
    """A run with long prompts and the delayed engine."""
    rollout = {
        "num_workers": num_workers,
        "num_tasks": num_tasks,
        "num_samples": num_samples,
        "max_reply_tokens": 64,
    }
    inference = {"engine": ENGINE, "max_model_len": 65_536, "max_num_seqs": 4096}
    env = {"id": ENVIRONMENT, "num_words": num_words, "num_tasks": num_tasks + WARM_UP}
    return parse_config(
        {
            "env": {**env, **sections.get("env", {})},
            "algo": {"type": "grpo"},
            "policies": {"shared": {"kind": "lora", "model": model}},
            "rollout": {**rollout, **sections.get("rollout", {})},
            "inference": {**inference, **sections.get("inference", {})},
            "cluster": {"device": "cpu", **sections.get("cluster", {})},
        }
    )


async def _bench(config: RunConfig, num_workers: int) -> WorkersBench:
    async with inference_team(config, {}, lambda _: None) as team:
        import ray  # running now

        tasks = list(team.env.tasks("train"))
        await team.play(tasks[:WARM_UP], 0)
        gc.collect()
        start, cpu, everything = time.perf_counter(), time.process_time(), cpu_seconds()
        episodes: list[Episode] = await team.play(tasks[WARM_UP:], 1)
        seconds, played = time.perf_counter() - start, time.process_time() - cpu
        everything = cpu_seconds() - everything
        cpu = time.process_time()
        make_algorithm_for(config).assign(episodes)
        episode_metrics(episodes, config, summarize(episodes, config))
        credited = time.process_time() - cpu
        cpu = time.process_time()
        ray.put(units_of(turns_of(episodes, "shared", False, False)))
        sent = time.process_time() - cpu
    turns = [turn for episode in episodes for turn in episode.turns]
    return WorkersBench(
        num_workers=num_workers,
        num_episodes=len(episodes),
        num_turns=len(turns),
        prompt_tokens=round(sum(turn.num_prompt_tokens for turn in turns) / len(turns), 1),
        turns_per_second=round(len(turns) / seconds, 1),
        total_us_per_turn=round(everything / len(turns) * 1e6, 1),
        driver_us_per_turn=round(played / len(turns) * 1e6, 1),
        credit_us_per_turn=round(credited / len(turns) * 1e6, 1),
        send_us_per_turn=round(sent / len(turns) * 1e6, 1),
    )
