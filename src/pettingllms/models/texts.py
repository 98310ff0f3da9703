"""What the built-in environments say and are told, for a tokenizer that knows their words."""

import random
from collections.abc import Iterator

from pettingllms.envs import make_env
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed


def environment_texts() -> list[str]:
    """Prompts and replies of one play of every environment by each of its scripted players.

    Each once, so that a long game does not take every word. Environments that wait for something
    outside are left out: a tokenizer must come out the same wherever it is made.
    """
    return list(dict.fromkeys(_all_texts()))


def _all_texts() -> Iterator[str]:
    for name in ENVIRONMENTS.names():
        env = make_env(name)
        if env.blocking:
            continue
        for player in env.players:
            rng = random.Random(derive_seed("texts", name, player))
            state = env.reset(env.tasks("train")[0], 0)
            while roles := env.acting(state):
                for role in roles:
                    yield from (message.content for message in env.observe(state, role))
                replies = {role: env.player(player)(env, state, role, rng) for role in roles}
                yield from replies.values()
                state = env.step(state, replies).state
