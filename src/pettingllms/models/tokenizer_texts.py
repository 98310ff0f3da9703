"""Prompts and replies of environments, to train tokenizers on."""

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from pettingllms.envs import Environment, make_env
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed


def environment_texts() -> list[str]:
    """Prompts and replies of one episode of every environment with each of its scripted players.

    Environments that call external programs or show images are left out: the tokenizer must be the
    same on every machine.
    """
    envs = [make_env(name) for name in ENVIRONMENTS.names()]
    return texts_of([env for env in envs if not env.blocking and not env.image_roles], num_tasks=1)


def texts_of(envs: Iterable[Environment[Any, Any]], num_tasks: int) -> list[str]:
    """Distinct prompts and replies of every scripted player on the first tasks. Duplicates are
    removed, so that a long game does not dominate."""
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
