"""Sums of several digits, generated from a seed: for models that are too small for text."""

import random

from pettingllms.datasets.problems import Problem


def make(seed: int, num_steps: int = 2) -> Problem:
    """The problem of a seed, with `num_steps` additions."""
    rng = random.Random(seed)
    numbers = [rng.randint(0, 9) for _ in range(num_steps + 1)]
    asked = "+".join(map(str, numbers))
    question = f"What is {asked}?"
    return Problem(f"sums:{seed}:{num_steps}", question, str(sum(numbers)), short=f"{asked}=")
