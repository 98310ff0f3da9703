"""Sudoku generation from a seed, with a solver that keeps the solution unique.

A grid is a string of its cells, row by row, with '.' for a blank.
"""

import random
from collections.abc import Iterator
from functools import cache, lru_cache
from math import isqrt

from pettingllms.seeds import derive_seed

BLANK = "."


@lru_cache(maxsize=4096)
def make_puzzle(seed: int, size: int, num_blanks: int) -> str:
    """Generate a puzzle: empty cells of a full grid while the solution stays unique.

    It has fewer than `num_blanks` blanks if no further cell can be emptied.
    """
    rng = random.Random(derive_seed("sudoku", seed, size, num_blanks))
    full = next(solutions(BLANK * size**2, rng=rng))
    cells = list(full)
    for at in rng.sample(range(size**2), size**2):
        if cells.count(BLANK) == num_blanks:
            break
        cells[at] = BLANK
        if any(solutions("".join(cells), other_than=(at, full[at]))):
            cells[at] = full[at]
    return "".join(cells)


@lru_cache(maxsize=4096)
def solution_of(puzzle: str) -> str:
    """The unique solution of a generated puzzle."""
    return next(solutions(puzzle))


def solutions(
    puzzle: str,
    rng: random.Random | None = None,
    other_than: tuple[int, str] | None = None,
) -> Iterator[str]:
    """All solutions, by backtracking on the cell with the fewest candidates.

    `rng` shuffles the digits; `other_than` is a cell and a digit that it must not hold.
    """
    size = isqrt(len(puzzle))
    banned = {} if other_than is None else {other_than[0]: 1 << int(other_than[1])}
    used = [0] * (3 * size)
    blanks = []
    for at, cell in enumerate(puzzle):
        if cell == BLANK:
            blanks.append(at)
            continue
        for unit in units(size)[at]:
            if used[unit] >> int(cell) & 1:
                return
            used[unit] |= 1 << int(cell)
    yield from _fill(list(puzzle), blanks, used, banned, rng)


def _fill(
    cells: list[str],
    blanks: list[int],
    used: list[int],
    banned: dict[int, int],
    rng: random.Random | None,
) -> Iterator[str]:
    if not blanks:
        yield "".join(cells)
        return
    size = len(used) // 3
    every = (1 << size + 1) - 2
    fewest, chosen, digits = size + 1, 0, 0
    for at in blanks:
        row, column, box = units(size)[at]
        left = every & ~(used[row] | used[column] | used[box] | banned.get(at, 0))
        if left.bit_count() < fewest:
            fewest, chosen, digits = left.bit_count(), at, left
            if fewest <= 1:
                break
    rest = [at for at in blanks if at != chosen]
    order = [digit for digit in range(1, size + 1) if digits >> digit & 1]
    if rng is not None:
        rng.shuffle(order)
    for digit in order:
        for unit in units(size)[chosen]:
            used[unit] ^= 1 << digit
        cells[chosen] = str(digit)
        yield from _fill(cells, rest, used, banned, rng)
        for unit in units(size)[chosen]:
            used[unit] ^= 1 << digit


@cache
def units(size: int) -> tuple[tuple[int, int, int], ...]:
    """For each cell, the indices of its row, column and box in one common list."""
    side = isqrt(size)
    return tuple(
        (row, size + column, 2 * size + row // side * side + column // side)
        for row in range(size)
        for column in range(size)
    )
