"""Collect labeled answers from recorded episodes or from new rollouts."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from pettingllms.cluster.inference_team import inference_team
from pettingllms.config import RunConfig
from pettingllms.config.verifier import VerifierConfig
from pettingllms.envs import Environment, make_env_at
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.training.initial_weights import initial_weights
from pettingllms.training.sft import episodes_in
from pettingllms.types import Episode, Task
from pettingllms.verifier.labeled_answers import Answer, balanced, label, train_test_split


def collect_answers(
    config: RunConfig, notify: Callable[[str], None]
) -> tuple[list[Answer], list[Answer]]:
    """Training answers and test answers, balanced if `verifier.balance` is set."""
    settings = config.verifier or VerifierConfig()
    if settings.episodes:
        episodes = list(episodes_in(settings.episodes, "verifier.episodes"))
    else:
        episodes = sample_episodes(config, notify)
    answers = label(episodes, settings, make_env_at(config, 1).rule)
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


def verifier_tasks(env: Environment[Any, Any], settings: VerifierConfig) -> list[Task]:
    """The training tasks of the verifier, without questions that occur among earlier tasks."""
    first, tasks = settings.first_task, env.tasks("train")
    found = list(itertools.islice(tasks, first, first + settings.num_tasks))
    if not found:
        raise DataError(
            f"verifier.first_task: is {first}, and '{env.id}' has {len(tasks)} training tasks; "
            "lower it, or raise env.num_tasks"
        )
    if not first:
        return found
    known = {_first_prompt(env, task) for task in itertools.islice(tasks, first)}
    return [task for task in found if _first_prompt(env, task) not in known]


def _first_prompt(env: Environment[Any, Any], task: Task) -> tuple[str, ...]:
    """What the first role is shown at the start of a task."""
    state = env.reset(task, task.seed)
    role = next(iter(env.acting(state)))
    return tuple(message.content for message in env.observe(state, role))


def sample_episodes(config: RunConfig, notify: Callable[[str], None]) -> list[Episode]:
    """Episodes of training tasks, sampled from the policies or from `train.init_from`."""
    settings = config.verifier or VerifierConfig()
    tasks = verifier_tasks(make_env_at(config, 1), settings)
    rollout = config.rollout.linear(settings.num_samples)

    async def run() -> list[Episode]:
        async with inference_team(config, weights, notify) as team:
            from pettingllms.cluster.stored_content import load_turns  # imports ray

            seed = derive_seed(config.seed, "verifier")
            return load_turns(await team.play(tasks, seed, rollout))

    weights = initial_weights(config)
    return asyncio.run(run())
