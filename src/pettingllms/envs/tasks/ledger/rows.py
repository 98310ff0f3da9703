"""Ledgers generated from a seed: entries with unique names and amounts, and a question."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from pettingllms.seeds import derive_seed

Question = Literal["lookup", "largest"]
HEADS = ("Al", "Ber", "Car", "Dan", "El", "Fan", "Gar", "Han", "Ing", "Jon", "Kar", "Lan")
TAILS = ("son", "sen", "man", "berg", "ley", "ton", "ford", "well", "dale", "wick", "ner", "rup")
NAMES = [head + tail for head, tail in product(HEADS, TAILS)]


@dataclass(frozen=True, slots=True)
class Sheet:
    """The entries and what is asked about them."""

    rows: tuple[tuple[str, int], ...]
    """Name and amount of each entry, in order."""
    wanted: str | None
    """The name whose amount is asked for; None: the largest amount is."""

    @property
    def truth(self) -> int:
        """The correct answer."""
        found = answer_in_part(self.rows, self.wanted)
        assert found is not None  # noqa: S101 - the wanted name is in the ledger
        return found

    def part(self, at: int, num_parts: int) -> tuple[tuple[str, int], ...]:
        """The entries of one reader; parts differ in length by at most one."""
        bounds = [len(self.rows) * edge // num_parts for edge in (at, at + 1)]
        return self.rows[bounds[0] : bounds[1]]


def amounts_of(num_digits: int) -> range:
    """All amounts with this number of digits."""
    return range(10 ** (num_digits - 1), 10**num_digits)


def make_sheet(seed: int, num_rows: int, num_digits: int, question: Question) -> Sheet:
    """Generate a ledger with its question."""
    rng = random.Random(derive_seed("ledger", seed))
    names = rng.sample(NAMES, num_rows)
    amounts = rng.sample(amounts_of(num_digits), num_rows)
    wanted = rng.choice(names) if question == "lookup" else None
    return Sheet(tuple(zip(names, amounts, strict=True)), wanted)


def answer_in_part(rows: Sequence[tuple[str, int]], wanted: str | None) -> int | None:
    """What these entries answer, if anything."""
    return max(amount for _, amount in rows) if wanted is None else dict(rows).get(wanted)
