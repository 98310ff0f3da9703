"""Scripted players of negotiation: random, a linear conceder and a late conceder."""

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.games.negotiation.replies import SELLER, offered_price
from pettingllms.envs.toolkit.noisy import noisy


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random offer; sometimes accept, rarely leave."""
    chance = rng.random()
    if chance < 0.3 and offered_price(state) is not None:
        return str(env.reply_of("accept"))
    if chance > 0.95:
        return str(env.reply_of("leave"))
    return str(env.reply_of(f"offer {rng.randint(0, env.config.max_price)}"))


def _concede(bend: float, env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Concede from the best price to the role's limit; a larger `bend` concedes later.

    Accept any offer that is as good as the next own offer.
    """
    limit, best = (state.cost, env.config.max_price) if role == SELLER else (state.value, 0)
    own_turns = range(len(state.said) % 2, env.config.max_turns, 2)
    ahead = len(own_turns) - 1
    passed = own_turns.index(len(state.said)) / ahead if ahead else 1.0
    price = round(best + (limit - best) * passed**bend)
    offered = offered_price(state)
    if offered is not None and (offered >= price if role == SELLER else offered <= price):
        return str(env.reply_of("accept"))
    words = f": I cannot go further than {price} now." if env.config.talk else ""
    return str(env.reply_of(f"offer {price}{words}"))


play_conceder: ScriptedPlayer = partial(_concede, 1.0)
PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_conceder, play_random),
    "conceder": play_conceder,
    "stubborn": partial(_concede, 4.0),
}
