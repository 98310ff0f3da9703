"""Comparative statements generated from a seed: natural-language inference without a data set.

A text compares several people. The statement follows from it, contradicts it, or compares people
that the text does not relate.
"""

import random
from itertools import pairwise

from pettingllms.datasets.arithmetic import NAMES, THINGS
from pettingllms.datasets.nli import LABELS, asked
from pettingllms.datasets.problems import Problem


def make(seed: int, num_steps: int = 2) -> Problem:
    """The problem of a seed, with a chain of `num_steps` comparisons."""
    rng = random.Random(seed)
    thing = rng.choice(THINGS)
    row = rng.sample(NAMES, num_steps + 2)
    apart, row = row[0], row[1:]
    sentences = [f"{more} has more {thing} than {less}." for more, less in pairwise(row)]
    sentences.append(f"{apart} has more {thing} than {row[-1]}.")
    rng.shuffle(sentences)
    label = rng.choice(LABELS)
    high, low = sorted(rng.sample(range(len(row)), 2))
    pair = (row[high], row[low])
    if label == "neutral":
        pair = (apart, row[rng.randrange(len(row) - 1)])
        pair = pair if rng.random() < 0.5 else (pair[1], pair[0])
    elif label == "contradiction":
        pair = (pair[1], pair[0])
    statement = f"{pair[0]} has more {thing} than {pair[1]}."
    names = {name: sign for sign, name in zip("ABCDEFGH", sorted([apart, *row]), strict=False)}
    short = "".join(_shortly(line, names) for line in [*sentences, statement])
    question = asked(" ".join(sentences), statement)
    return Problem(f"statements:{seed}:{num_steps}", question, label, LABELS, short)


def _shortly(line: str, names: dict[str, str]) -> str:
    words = line.rstrip(".").split()
    return f"{names[words[0]]}>{names[words[-1]]} "
