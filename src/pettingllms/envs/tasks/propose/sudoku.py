"""Sudoku tasks of size 4: a grid with the given clues and exactly one solution."""

import random
from itertools import islice

from pettingllms.envs.puzzles.sudoku.levels import BLANK, solutions
from pettingllms.envs.tasks.propose.domain import MAX_LEVEL, NUM_TRIES, Domain, ProposedTask
from pettingllms.envs.toolkit.answers import BadReply

SIZE = 4
NUM_CELLS = SIZE**2
DIGITS = "1234"
ROW_BREAK = "/"
FEWEST_BLANKS, MOST_BLANKS = 3, 10


class Sudoku4(Domain):
    """The proposer adds clues to the given ones until the solution is unique."""

    max_letters = 120
    proposer_rules = (
        "A task is a 4x4 Sudoku: 16 cells in rows from top to bottom with / between rows, a digit "
        "from 1 to 4 or . for a blank. It must keep the given digits and have exactly one "
        "solution. A task is rejected if no row has two blanks."
    )
    solver_rules = (
        "Fill a 4x4 Sudoku: each row, each column and each 2x2 box holds the digits 1 to 4 once. "
        "The given digits stay, and . is a blank. Answer with all rows, with / between rows."
    )

    def __init__(self, num_given: int) -> None:
        self._num_given = num_given

    def draw(self, rng: random.Random) -> tuple[str, ...]:
        """One grid with clues that some full grid contains, and with a row of two blanks: without
        one, all tasks with these clues are trivial."""
        full = next(solutions(BLANK * NUM_CELLS, rng=rng))
        while True:
            kept = rng.sample(range(NUM_CELLS), self._num_given)
            clues = _rows("".join(full[at] if at in kept else BLANK for at in range(NUM_CELLS)))
            if not _is_trivial(clues):
                return (clues,)

    def parse(self, text: str, given: tuple[str, ...]) -> ProposedTask:
        cells = self._cells(text, DIGITS + BLANK)
        clues = given[0].replace(ROW_BREAK, "")
        if any(clue not in (BLANK, cell) for clue, cell in zip(clues, cells, strict=True)):
            raise BadReply("it must keep the given digits")
        found = list(islice(solutions(cells), 2))
        if len(found) != 1:
            raise BadReply(f"it has {'no' if not found else 'more than one'} solution")
        text, num_blanks = _rows(cells), cells.count(BLANK)
        trivial = "no row has two blanks" if _is_trivial(text) else ""
        level = min(MAX_LEVEL, max(1, num_blanks // 2))
        return ProposedTask(text, _rows(found[0]), level, trivial)

    def write(self, given: tuple[str, ...], rng: random.Random) -> str:
        for _ in range(NUM_TRIES):
            text = _random_puzzle(given[0].replace(ROW_BREAK, ""), rng)
            if not _is_trivial(text):
                break
        return text

    def read(self, text: str) -> str:
        return _rows(self._cells(text, DIGITS))

    def guess(self, task: ProposedTask, rng: random.Random) -> str:
        return "".join(rng.choice(DIGITS) if cell == BLANK else cell for cell in task.text)

    def _cells(self, text: str, symbols: str) -> str:
        cells = self.checked(text).replace(ROW_BREAK, "")
        if not {*cells} <= {*symbols}:
            raise BadReply(f"it has a symbol other than {symbols} and {ROW_BREAK}")
        if len(cells) != NUM_CELLS:
            raise BadReply(f"it does not have {NUM_CELLS} cells")
        return cells


def _random_puzzle(clues: str, rng: random.Random) -> str:
    """A full grid with these clues, and other cells emptied while the solution stays unique."""
    full = next(solutions(clues, rng=rng))
    cells, num_blanks = list(full), rng.randint(FEWEST_BLANKS, MOST_BLANKS)
    free = [at for at in range(NUM_CELLS) if clues[at] == BLANK]
    for at in rng.sample(free, len(free)):
        if cells.count(BLANK) == num_blanks:
            break
        cells[at] = BLANK
        if any(solutions("".join(cells), other_than=(at, full[at]))):
            cells[at] = full[at]
    return _rows("".join(cells))


def _is_trivial(text: str) -> bool:
    return max(row.count(BLANK) for row in text.split(ROW_BREAK)) < 2


def _rows(cells: str) -> str:
    return ROW_BREAK.join(cells[at : at + SIZE] for at in range(0, NUM_CELLS, SIZE))
