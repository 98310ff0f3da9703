"""Runs with many turns, made quickly: one step is written, and its shard copied to the others."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from viewed import config_of, metrics_of, write_shards

from pettingllms.config import to_toml
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.trackers import JsonLines
from pettingllms.types import Credit, Episode, Rewards, Scored, Step, Task, TreeLinks, Turn, user

ROLES = ("planner", "checker")
WORDS = ("up", "down", "left", "right", "wall", "goal", "move", "turn", "then", "first", "path")


def random_episode(
    number: int, num_turns: int, num_words: int, rng: np.random.Generator
) -> Episode:
    """Turns with other ids, log-probs and rewards each, on prompts that roles share."""
    turns, steps = [], []
    for at in range(num_turns):
        text = " ".join(rng.choice(WORDS, num_words))
        ids = rng.integers(0, 49_000, num_words).astype(np.int32)
        logprobs = -rng.exponential(0.7, num_words).astype(np.float32)
        learner = logprobs + rng.normal(0, 1e-5, num_words).astype(np.float32)
        credit = Credit(advantage=float(rng.normal()), learner_logprobs=learner)
        prompt = np.append(np.arange(60, dtype=np.int32), np.int32(number % 50))
        ends = np.cumsum([len(word) + 1 for word in text.split()]).astype(np.int32)
        turns.append(
            Turn(
                ROLES[at % 2], "shared", (user(f"Maze {number % 50}. Reply with moves."),), prompt,
                ids, logprobs, text, 3, ends=ends, credit=credit,
                links=TreeLinks(step=at, last=num_turns - 1),
            )
        )  # fmt: skip
        reward = Rewards(team=Scored(float(rng.integers(0, 2))))
        steps.append(Step(at - 1 if at else None, (at,), reward, final=at == num_turns - 1))
    success = dict.fromkeys(ROLES, bool(rng.integers(0, 2)))
    task = Task(f"train-{number % 50}", {"maze": number % 50}, number)
    return Episode(
        f"train-{number % 50}/{number}", "plan_path-v1", task, number, turns, steps,
        last=num_turns - 1, success=success,
    )  # fmt: skip


def write_big_run(
    folder: Path, num_steps: int, num_episodes: int, num_turns: int, num_words: int = 4
) -> Sequence[Path]:
    """A run of num_steps × num_episodes × num_turns turns; returns its shards."""
    rng, config = np.random.default_rng(0), config_of()
    episodes = [random_episode(n, num_turns, num_words, rng) for n in range(num_episodes)]
    folder.mkdir()
    (folder / "config.toml").write_text(to_toml(config))
    write_shards(folder, 1, episodes, config)
    shards = [RunFolder(folder).shard(step) for step in range(1, num_steps + 1)]
    tracker = JsonLines(folder / "metrics.jsonl")
    for step, shard in enumerate(shards, start=1):
        tracker.log(step, metrics_of(step))
        if shard != shards[0]:
            shutil.copyfile(shards[0], shard)
    tracker.close()
    return shards
