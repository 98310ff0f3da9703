"""Scripted players of the visual relay: any cell, and what an honest pair says and does."""

import random
import re
from typing import Any

from pettingllms.envs.puzzles.visual_relay.image import cell_name

CELL = re.compile(r"\b[A-F][1-6]\b")


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Some cell, to say or to take."""
    side = env.config.side
    return str(env.reply_of(cell_name(rng.randrange(side * side), side)))


def play_honest(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Says where the piece is; takes the cell that it heard last, if it heard any."""
    if role == env.roles[0]:
        return str(env.reply_of(cell_name(dict(state.pieces)[state.wanted], env.config.side)))
    heard = CELL.findall(state.words or "")
    return str(env.reply_of(heard[-1])) if heard else play_random(env, state, role, rng)


PLAYERS = {"random": play_random, "honest": play_honest}
