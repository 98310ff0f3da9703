"""Runs to look at, made without an engine: real rollouts of scripted players, with real credit."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from plays import overwrite

from pettingllms.algos import make_algorithm_for
from pettingllms.config import RunConfig, load_config, to_toml
from pettingllms.runs.episode_summary import summarize_with
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.trackers import JsonLines
from pettingllms.training.collect import collect
from pettingllms.types import Episode, read_episodes, write_episodes

CONFIGS = Path(__file__).parents[2] / "configs"


def config_of(*overrides: str) -> RunConfig:
    """A planner and a checker in a small maze, in trees."""
    small = ["env.width=4", "env.height=4", "env.terse=true", "rollout.num_samples=4"]
    return load_config(CONFIGS / "plan_path_quickstart.toml", [*small, *overrides])


def rolled(folder: Path, num_tasks: int, *overrides: str) -> list[Episode]:
    """Episodes of a noisy player."""
    config = config_of(f"rollout.num_tasks={num_tasks}", "env.num_tasks=2000", *overrides)
    with ThreadPoolExecutor(1) as pool:  # the caller may already run an event loop
        pool.submit(collect, config, folder, "noisy").result()
    return list(read_episodes(folder / "episodes.jsonl"))


def write_run(
    folder: Path,
    episodes: Sequence[Episode],
    num_steps: int,
    *overrides: str,
    num_shards: int = 1,
    lines: bool = False,
) -> RunConfig:
    """A run's folder, with the episodes dealt out to the shards of its steps, or to JSON lines as
    in version 0.1."""
    config = config_of(*overrides)
    (folder / "episodes").mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(config))
    tracker = JsonLines(folder / "metrics.jsonl")
    size = -(-len(episodes) // num_steps)
    for step in range(1, num_steps + 1):
        part = list(episodes[(step - 1) * size : step * size])
        make_algorithm_for(config).assign(part)
        if lines:
            write_episodes(folder / "episodes" / f"step-{step:06d}.jsonl", part)
        else:
            write_shards(folder, step, part, config, num_shards)
        tracker.log(step, metrics_of(step))
    tracker.close()
    return config


def write_shards(
    folder: Path, step: int, episodes: Sequence[Episode], config: RunConfig, num_shards: int = 1
) -> None:
    """The shards of a step."""
    size = -(-len(episodes) // num_shards)
    for number in range(num_shards):
        part = episodes[number * size : (number + 1) * size]
        path = RunFolder(folder).shard(step, number)
        write_episodes(path, part, summarize_with(config.reward))


def metrics_of(step: int) -> dict[str, float]:
    found = {"rollout/tokens_per_second": 900.0 + step, "time/step": 3.0}
    for at, name in enumerate(("planner", "checker")):
        found |= {f"roles/{name}/reward": step / 50 + at, f"roles/{name}/success": step / 50}
        found |= {
            f"policies/{name}/mismatch": 1e-6 * step,
            f"policies/{name}/sampler_entropy": 2 / step,
        }
        if step % 4 == 0:
            found[f"roles/{name}/eval_success"] = step / 60
    return found


def with_tokens(episode: Episode) -> Episode:
    """The same with a log-prob on both sides for every letter that was said."""
    for number, turn in enumerate(episode.turns):
        count = len(turn.text)
        overwrite(turn, response_ids=np.arange(count + 1, dtype=np.int32))
        overwrite(turn, ends=np.array([*range(1, count + 1), count], dtype=np.int32))
        overwrite(turn, logprobs=np.full(count + 1, -0.5, dtype=np.float32))
        turn.credit.learner_logprobs = turn.logprobs + np.float32(0.001 * (number + 1))
    return episode
