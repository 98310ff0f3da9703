"""Collect labeled answers from recorded episodes or from new rollouts."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

from pettingllms.cluster.inference_team import inference_team
from pettingllms.config import RunConfig
from pettingllms.config.verifier import VerifierConfig
from pettingllms.envs import make_env_at
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.training.initial_weights import initial_weights
from pettingllms.types import Episode, read_episodes
from pettingllms.verifier.labeled_answers import Answer, balanced, label, train_test_split


def collect_answers(
    config: RunConfig, notify: Callable[[str], None]
) -> tuple[list[Answer], list[Answer]]:
    """Training answers and test answers, balanced if `verifier.balance` is set."""
    settings = config.verifier or VerifierConfig()
    if settings.episodes:
        episodes = [e for path in settings.episodes for e in read_episodes(Path(path))]
    else:
        episodes = sample_episodes(config, notify)
    answers = label(episodes, settings)
    num_correct = sum(answer.correct for answer in answers)
    notify(f"{len(answers)} answers, {num_correct} of them correct")
    if settings.balance:
        answers = balanced(answers, settings.max_each, config.seed)
        notify(f"balanced: {len(answers)} answers")
    if not answers:
        raise DataError(
            "no answers are left: no question has both correct and wrong answers; sample more of "
            "each (verifier.num_samples), choose tasks of medium difficulty, or set "
            "verifier.balance=false"
        )
    return train_test_split(answers, settings.test_share, config.seed)


def sample_episodes(config: RunConfig, notify: Callable[[str], None]) -> list[Episode]:
    """Episodes of training tasks, sampled from the policies or from `train.init_from`."""
    settings = config.verifier or VerifierConfig()
    tasks = list(itertools.islice(make_env_at(config, 1).tasks("train"), settings.num_tasks))
    rollout = config.rollout.linear(settings.num_samples)

    async def run() -> list[Episode]:
        async with inference_team(config, weights, notify) as team:
            return await team.play(tasks, derive_seed(config.seed, "verifier"), rollout)

    weights = initial_weights(config)
    return asyncio.run(run())
