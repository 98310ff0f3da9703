"""Scripted players of tic-tac-toe: random, minimax, and a noisy mix of both."""

import random
from functools import cache
from typing import Any

from pettingllms.envs.toolkit.noisy import noisy

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def free(cells: str) -> list[int]:
    """Free cells."""
    return [at for at, cell in enumerate(cells) if cell == "."]


def wins(cells: str, mark: str) -> bool:
    """Whether the mark has three in a row."""
    return any(cells[a] == cells[b] == cells[c] == mark for a, b, c in LINES)


@cache
def value(cells: str, mark: str) -> int:
    """Minimax value for the side to move: 1, 0 or -1."""
    rival = "O" if mark == "X" else "X"
    if wins(cells, rival):
        return -1
    return max((-value(_put(cells, at, mark), rival) for at in free(cells)), default=0)


def _put(cells: str, at: int, mark: str) -> str:
    return cells[:at] + mark + cells[at + 1 :]


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any free cell."""
    return str(env.reply_of(str(rng.choice(free(state.cells)) + 1)))


def play_minimax(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random one of the optimal moves."""
    mark, rival = ("X", "O") if role == "player_x" else ("O", "X")
    values = {at: -value(_put(state.cells, at, mark), rival) for at in free(state.cells)}
    best = [at for at, of_move in values.items() if of_move == max(values.values())]
    return str(env.reply_of(str(rng.choice(best) + 1)))


PLAYERS = {
    "random": play_random,
    "noisy": noisy(play_minimax, play_random),
    "minimax": play_minimax,
}
