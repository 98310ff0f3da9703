"""Arithmetic word problems generated from a seed: a quantity that changes a few times.

All intermediate numbers are non-negative integers: the difficulty is reading and bookkeeping, not
division.
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
"""Maps a quantity to a sentence, the new quantity and the formula of the step, or to None."""


def make(seed: int, num_steps: int = 2) -> Problem:
    """The problem of a seed; deterministic."""
    rng = random.Random(seed)
    name, other = rng.sample(NAMES, 2)
    thing, stock = rng.choice(THINGS), rng.randint(3, 40)
    sentences = [f"NAME has {stock} THINGS in {rng.choice(PLACES)}."]
    formula, last = str(stock), None
    for _ in range(num_steps):
        last, (sentence, stock, step) = _change(rng, stock, last)
        sentences.append(sentence)
        formula = f"({formula}){step}" if step[0] in "*/" else f"{formula}{step}"
    text = " ".join([*sentences, "How many THINGS does NAME have now?"])
    for word, meant in (("NAME", name), ("OTHER", other), ("THINGS", thing)):
        text = text.replace(word, meant)
    return Problem(f"arithmetic:{seed}:{num_steps}", text, str(stock), short=f"{formula}=")


def _change(
    rng: random.Random, stock: int, last: Change | None
) -> tuple[Change, tuple[str, int, str]]:
    """A change that is possible for the quantity and of another kind than the last one."""
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
    sentence = f"NAME buys {packs} packs of {each} THINGS each."
    return sentence, stock + packs * each, f"+{packs}*{each}"


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
    sentence = f"NAME divides them equally among {parts} people and keeps one share."
    return sentence, stock // parts, f"/{parts}"


CHANGES: tuple[Change, ...] = (_gets, _buys, _loses, _grows, _shares)
