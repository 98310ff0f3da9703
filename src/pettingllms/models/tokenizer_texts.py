"""What environments say and are told, for a tokenizer that knows their words."""

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from pettingllms.envs import Environment, make_env
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed


def environment_texts() -> list[str]:
    """Prompts and replies of one play of every environment by each of its scripted players.

    Environments that wait for something outside, or draw, are left out: a tokenizer must come out
    the same wherever it is made.
    """
    envs = [make_env(name) for name in ENVIRONMENTS.names()]
    return texts_of([env for env in envs if not env.blocking and not env.image_roles], num_tasks=1)


def texts_of(envs: Iterable[Environment[Any, Any]], num_tasks: int) -> list[str]:
    """Prompts and replies of every scripted player on the first tasks, each once, so that a long
    game does not take every word."""
    return list(dict.fromkeys(text for env in envs for text in _texts(env, num_tasks)))


def _texts(env: Environment[Any, Any], num_tasks: int) -> Iterator[str]:
    for player in env.players:
        rng = random.Random(derive_seed("texts", env.id, player))
        for task in islice(env.tasks("train"), num_tasks):
            state = env.reset(task, 0)
            while roles := env.acting(state):
                for role in roles:
                    yield from (message.text for message in env.observe(state, role))
                replies = {role: env.player(player)(env, state, role, rng) for role in roles}
                yield from replies.values()
                state = env.step(state, replies).state
