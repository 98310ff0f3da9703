"""What the built-in environments say and are told, for a tokenizer that knows their words."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from pettingllms.envs import Environment, make_env
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed


def environment_texts(envs: Iterable[Environment[Any, Any]] | None = None) -> list[str]:
    """Prompts and replies of one play of each environment by each of its scripted players; of all
    built-in ones if none are given.

    Each once, so that a long game does not take every word. Environments that wait for something
    outside are left out: a tokenizer must come out the same wherever it is made.
    """
    if envs is None:
        envs = [make_env(name) for name in ENVIRONMENTS.names()]
    return list(dict.fromkeys(text for env in envs for text in _texts(env)))


def _texts(env: Environment[Any, Any]) -> Iterator[str]:
    if not env.blocking:
        for player in env.players:
            rng = random.Random(derive_seed("texts", env.id, player))
            state = env.reset(env.tasks("train")[0], 0)
            while roles := env.acting(state):
                for role in roles:
                    yield from (message.content for message in env.observe(state, role))
                replies = {role: env.player(player)(env, state, role, rng) for role in roles}
                yield from replies.values()
                state = env.step(state, replies).state
