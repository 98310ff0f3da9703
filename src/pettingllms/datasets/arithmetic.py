"""Arithmetic word problems made from a seed: a stock of something, changed a few times.

Every number on the way is a whole one, and none is below zero: what is hard is to read and to keep
count, not to divide.
"""

import random
from collections.abc import Callable

from pettingllms.datasets.problems import Problem

NAMES = (
    *("Ada", "Ben", "Carla", "Deng", "Emeka", "Fatima", "Goran", "Hana"),
    *("Ivo", "Jun", "Kofi", "Lena", "Mira", "Noor", "Olga", "Pablo"),
)
THINGS = (
    *("apples", "books", "cards", "coins", "eggs", "marbles"),
    *("pencils", "shells", "stamps", "stickers", "tickets"),
)
PLACES = ("a box", "a drawer", "a bag", "a basket", "a jar")
MAX_STOCK = 400

Change = Callable[[random.Random, int], tuple[str, int, str] | None]
"""A stock in; a sentence, the new stock and the step as a formula out, or None if it cannot be."""


def make(seed: int, num_steps: int = 2) -> Problem:
    """The problem of a seed: the same each time."""
    rng = random.Random(seed)
    name, other = rng.sample(NAMES, 2)
    thing, stock = rng.choice(THINGS), rng.randint(3, 40)
    told = [f"NAME has {stock} THINGS in {rng.choice(PLACES)}."]
    formula, last = str(stock), None
    for _ in range(num_steps):
        last, (sentence, stock, step) = _change(rng, stock, last)
        told.append(sentence)
        formula = f"({formula}){step}" if step[0] in "*/" else f"{formula}{step}"
    text = " ".join([*told, "How many THINGS does NAME have now?"])
    for word, meant in (("NAME", name), ("OTHER", other), ("THINGS", thing)):
        text = text.replace(word, meant)
    return Problem(f"arithmetic:{seed}:{num_steps}", text, str(stock), short=f"{formula}=")


def _change(
    rng: random.Random, stock: int, last: Change | None
) -> tuple[Change, tuple[str, int, str]]:
    """A change that fits the stock, and that is not of the same kind as the last one."""
    while True:
        change = rng.choice(CHANGES)
        made = None if change is last else change(rng, stock)
        if made is not None and made[1] <= MAX_STOCK:
            return change, made


def _gets(rng: random.Random, stock: int) -> tuple[str, int, str]:
    more = rng.randint(2, 30)
    return f"OTHER gives NAME {more} THINGS.", stock + more, f"+{more}"


def _buys(rng: random.Random, stock: int) -> tuple[str, int, str]:
    packs, each = rng.randint(2, 6), rng.randint(2, 9)
    told = f"NAME buys {packs} packs of {each} THINGS each."
    return told, stock + packs * each, f"+{packs}*{each}"


def _loses(rng: random.Random, stock: int) -> tuple[str, int, str] | None:
    if stock < 3:
        return None
    less = rng.randint(1, stock - 1)
    return f"NAME gives {less} of them to OTHER.", stock - less, f"-{less}"


def _grows(rng: random.Random, stock: int) -> tuple[str, int, str]:
    times = rng.randint(2, 4)
    word = {2: "twice", 3: "three times", 4: "four times"}[times]
    return f"A week later NAME has {word} as many.", stock * times, f"*{times}"


def _shares(rng: random.Random, stock: int) -> tuple[str, int, str] | None:
    ways = [ways for ways in range(2, 7) if stock % ways == 0 and stock > ways]
    if not ways:
        return None
    parts = rng.choice(ways)
    told = f"NAME divides them equally among {parts} people and keeps one share."
    return told, stock // parts, f"/{parts}"


CHANGES: tuple[Change, ...] = (_gets, _buys, _loses, _grows, _shares)
