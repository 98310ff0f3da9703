"""Sudoku puzzles with one solution, and how a grid is read and scored."""

import random

import pytest
from pydantic import ValidationError

from pettingllms.envs import make_env
from pettingllms.envs.puzzles.sudoku.levels import make_puzzle, solution_of, solutions
from pettingllms.envs.toolkit.answers import BadReply

PUZZLE = "12..341221.34321"
"""Of 4x4; the solution is 1234/3412/2143/4321."""
SOLVED = "1234/3412/2143/4321"


def count_solutions(cells, limit=2):
    """Up to `limit`, by the first blank and sets of peers: not the code under test."""
    if "." not in cells:
        return 1
    size = {16: 4, 81: 9}[len(cells)]
    side = {4: 2, 9: 3}[size]
    at = cells.index(".")
    y, x = divmod(at, size)
    taken = {
        cells[r * size + c]
        for r in range(size)
        for c in range(size)
        if r == y or c == x or (r // side, c // side) == (y // side, x // side)
    }
    found = 0
    for digit in "123456789"[:size]:
        if digit not in taken:
            found += count_solutions(cells[:at] + digit + cells[at + 1 :], limit - found)
            if found >= limit:
                break
    return found


@pytest.mark.parametrize(
    ("size", "num_blanks", "num_puzzles"), [(4, 6, 100), (4, 16, 60), (9, 30, 40), (9, 45, 8)]
)
def test_puzzles_have_exactly_one_solution(size, num_blanks, num_puzzles):
    for seed in range(num_puzzles):
        puzzle = make_puzzle(seed, size, num_blanks)
        assert len(puzzle) == size**2
        assert 1 <= puzzle.count(".") <= num_blanks
        assert count_solutions(puzzle) == 1
        assert count_solutions(solution_of(puzzle)) == 1
        assert all(a in (".", b) for a, b in zip(puzzle, solution_of(puzzle), strict=True))


@pytest.mark.parametrize(("size", "num_blanks"), [(4, 6), (9, 30), (9, 40)])
def test_the_blanks_that_were_asked_are_there(size, num_blanks):
    assert {make_puzzle(seed, size, num_blanks).count(".") for seed in range(30)} == {num_blanks}


def test_too_many_blanks_stop_where_one_solution_ends():
    puzzles = [make_puzzle(seed, 4, 16) for seed in range(30)]
    assert all(puzzle.count(".") < 16 for puzzle in puzzles)
    for puzzle in puzzles[:10]:
        for at in [at for at, cell in enumerate(puzzle) if cell != "."]:
            assert count_solutions(puzzle[:at] + "." + puzzle[at + 1 :]) == 2


def test_the_solver_finds_every_solution():
    assert sum(1 for _ in solutions("." * 16)) == 288
    assert list(solutions(PUZZLE)) == [SOLVED.replace("/", "")]
    assert list(solutions("11" + "." * 14)) == []


@pytest.mark.parametrize(
    "answer",
    [
        SOLVED,
        "1234341221434321",
        "1234 3412 2143 4321",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1",
        "1234 / 3412 / 2143 / 4321",
    ],
)
def test_grids_are_read(answer):
    assert make_env("sudoku-v1").read(PUZZLE, answer) == SOLVED


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("1234/3412/2143/432.", r"'\.' is not a digit from 1 to 4"),
        ("1234/3412/2143/4325", "'5' is not a digit from 1 to 4"),
        ("1234/3412/2143/4320", "'0' is not a digit"),
        ("1234/3412/2143/432²", "'²' is not a digit"),
        ("1234|3412|2143|4321", r"'\|' is not a digit"),
        ("1234/3412/2143/432", "15 digits, but the grid has 16 cells"),
        ("1234/3412/2143/43211", "17 digits, but the grid has 16 cells"),
        ("/", "0 digits, but the grid has 16 cells"),
        ("1234/3412/2143/1321", "row 4, column 1 is given as 4, not 1"),
    ],
)
def test_refusals_say_why(answer, reason):
    with pytest.raises(BadReply, match=reason):
        make_env("sudoku-v1").read(PUZZLE, answer)


@pytest.mark.parametrize(
    ("plan", "score"),
    [
        (SOLVED, 1.0),
        ("1243/3412/2143/4321", 0.9 / 3),
        ("1234/3412/2133/4321", 0.9 * 2 / 3),
        ("1211/3412/2113/4321", 0.0),
    ],
)
def test_score(plan, score):
    assert make_env("sudoku-v1").score(PUZZLE, plan) == pytest.approx(score)


@pytest.mark.parametrize(
    "options", [{"size": 5}, {"num_blanks": 17}, {"num_blanks": 0}, {"size": 9, "num_blanks": 82}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValidationError):
        make_env("sudoku-v1", **options)


def test_the_drawing_tells_given_digits_from_others():
    env = make_env("sudoku-v1")
    assert env.paint(PUZZLE, None).count("[bold]") == 13
    drawn = env.paint(PUZZLE, SOLVED)
    assert (drawn.count("[bold]"), drawn.count("[cyan]")) == (13, 3)
    assert "├─────┼─────┤" in drawn


def test_the_blind_player_fills_rows_and_ignores_columns_and_boxes():
    env = make_env("sudoku-v1", terse=True, num_blanks=10)
    solved = 0
    for number, task in enumerate(env.tasks("test")[:200]):
        state = env.reset(task, 0)
        plan = env.players["blind"](env, state, "planner", random.Random(number))
        rows = [plan[at : at + 4] for at in range(0, 16, 4)]
        assert all(sorted(row) == list("1234") for row in rows)
        assert env.refusal(state, "planner", plan) is None
        solved += env.score(state.puzzle, plan) == 1.0
    assert solved < 20
