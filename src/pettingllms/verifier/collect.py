"""Where answers come from: episodes that are there already, or policies that are sampled from."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

from pettingllms.cluster.inference_team import playing_team
from pettingllms.config import RunConfig
from pettingllms.envs import make_env_at
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.training.initial_weights import initial_weights
from pettingllms.types import Episode, read_episodes
from pettingllms.verifier.labeled_answers import Answer, balanced, label, parted


def collect_answers(
    config: RunConfig, notify: Callable[[str], None]
) -> tuple[list[Answer], list[Answer]]:
    """The answers to learn from and those kept for a test, balanced if they are to be."""
    settings = config.verifier
    if settings.episodes:
        episodes = [e for path in settings.episodes for e in read_episodes(Path(path))]
    else:
        episodes = sampled(config, notify)
    answers = label(episodes, settings)
    num_right = sum(answer.right for answer in answers)
    notify(f"{len(answers)} answers, {num_right} of them right")
    if settings.balance:
        answers = balanced(answers, settings.max_each, config.seed)
        notify(f"balanced: {len(answers)} answers")
    if not answers:
        raise DataError(
            "no answers are left: no question was answered both right and wrong; sample more of "
            "each (verifier.num_samples), take tasks of middling difficulty, or set "
            "verifier.balance=false"
        )
    return parted(answers, settings.test_share, config.seed)


def sampled(config: RunConfig, notify: Callable[[str], None]) -> list[Episode]:
    """Plays of training tasks by the policies as they are, or as `train.init_from` has them."""
    settings = config.verifier
    tasks = list(itertools.islice(make_env_at(config, 1).tasks("train"), settings.num_tasks))
    rollout = config.rollout.linear(settings.num_samples)

    async def run() -> list[Episode]:
        async with playing_team(config, begun, notify) as team:
            return await team.play(tasks, derive_seed(config.seed, "verifier"), rollout)

    begun = initial_weights(config)
    return asyncio.run(run())
