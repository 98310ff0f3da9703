"""Scripted players of negotiation: random, one that concedes step by step, one that hardly does."""

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.games.negotiation.replies import SELLER, price_on_the_table
from pettingllms.envs.toolkit.noisy import noisy


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any price, now and then a deal, seldom the door."""
    chance = rng.random()
    if chance < 0.3 and price_on_the_table(state) is not None:
        return str(env.reply_of("accept"))
    if chance > 0.95:
        return str(env.reply_of("leave"))
    return str(env.reply_of(f"offer {rng.randint(0, env.config.max_price)}"))


def _concede(bend: float, env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Go from the best price that the other could pay to one's own limit; accept what is as good
    as the next offer would be. The larger the bend, the later."""
    limit, best = (state.cost, env.config.max_price) if role == SELLER else (state.value, 0)
    own_turns = range(len(state.said) % 2, env.config.max_turns, 2)
    ahead = len(own_turns) - 1
    passed = own_turns.index(len(state.said)) / ahead if ahead else 1.0
    price = round(best + (limit - best) * passed**bend)
    offered = price_on_the_table(state)
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
