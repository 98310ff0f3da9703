"""Sokoban rules, scores, levels made by pulling and levels from files."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from pettingllms.envs import check_env, make_env
from pettingllms.envs.puzzles.sokoban.levels import make_level, read_levels
from pettingllms.envs.puzzles.sokoban.players import Search, solve
from pettingllms.envs.puzzles.sokoban.rules import after, drawn, goals_of, score_plan, start_of
from pettingllms.envs.toolkit.grid import Grid

TWO_BOXES = Grid("#######\n#@$-.-#\n#-$-.-#\n#-----#\n#######")
"""Solved by RRLLDRR: both boxes go two cells to the right."""
DATA = Path(os.environ.get("PETTINGLLMS_DATA", Path(__file__).parents[4] / "shared" / "data"))


@pytest.mark.parametrize(
    ("plan", "score"),
    [
        ("RRLLDRR", 1.0),
        ("RRLLDRRL", 1.0),
        ("RRLLDRRLLLLL", 0.95),
        ("RR", 0.8 / 2 + 0.15 / 2),
        ("R", 0.15 / 4),
        ("RRR", 0.15 / 4),
        ("D", 0.0),
        ("U", 0.0),
    ],
)
def test_score(plan, score):
    assert score_plan(TWO_BOXES, plan) == pytest.approx(score)


@pytest.mark.parametrize(
    ("rows", "plan", "end"),
    [
        ("#####\n#@$.#\n#####", "R", "#####\n#-@*#\n#####"),
        ("#####\n#@$.#\n#####", "RR", "#####\n#-@*#\n#####"),
        ("######\n#@*-.#\n######", "RR", "######\n#-.@*#\n######"),
        ("######\n#@$$.#\n######", "R", "######\n#@$$.#\n######"),
        ("#####\n#@.$#\n#####", "R", "#####\n#-+$#\n#####"),
        ("#####\n#@$.#\n#####", "L", "#####\n#@$.#\n#####"),
    ],
)
def test_moves_push_and_stop(rows, plan, end):
    level = Grid(rows)
    position = after(level, plan)
    assert drawn(level, position.boxes, position.player).text == end


def simulate(rows, plan):
    """Whether a plan solves a level: rows and columns, without the code under test."""
    cells = {(y, x): c for y, row in enumerate(rows) for x, c in enumerate(row)}
    boxes = {at for at, c in cells.items() if c in "$*"}
    goals = {at for at, c in cells.items() if c in ".*+"}
    (me,) = (at for at, c in cells.items() if c in "@+")
    for move in plan:
        dy, dx = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}[move]
        ahead, beyond = (me[0] + dy, me[1] + dx), (me[0] + 2 * dy, me[1] + 2 * dx)
        if cells[ahead] == "#":
            return False
        if ahead in boxes:
            if cells[beyond] == "#" or beyond in boxes:
                return False
            boxes = boxes - {ahead} | {beyond}
        me = ahead
    return boxes == goals


@pytest.mark.parametrize(
    ("width", "height", "num_boxes", "num_pulls", "max_moves", "num_levels"),
    [
        (6, 6, 1, 12, 200, 100),
        (6, 6, 2, 12, 200, 60),
        (6, 6, 4, 12, 200, 20),
        (5, 5, 1, 1, 20, 40),
        (9, 7, 2, 60, 25, 20),
    ],
)
def test_levels_are_as_asked_and_solved(width, height, num_boxes, num_pulls, max_moves, num_levels):
    for seed in range(num_levels):
        level = make_level(seed, width, height, num_boxes, num_pulls, max_moves)
        rows = level.text.split("\n")
        assert [len(row) for row in rows] == [width] * height
        assert set(rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)) == {"#"}
        assert len(start_of(level).boxes) == len(goals_of(level)) == num_boxes
        assert "$" in level.text
        plan = solve(level, max_moves)
        assert plan is not None
        assert len(plan) <= max_moves
        assert simulate(rows, plan)
        assert not simulate(rows, plan[:-1])


def test_the_usual_level_is_no_single_push():
    lengths = [len(solve(make_level(seed, 6, 6, 1, 12, 200), 200)) for seed in range(100)]
    assert min(lengths) >= 2
    assert sorted(lengths)[50] >= 5


@pytest.mark.parametrize(
    "rows",
    [
        "#####\n#@--#\n#$.-#\n#---#\n#####",
        "######\n#$-@-#\n#--.-#\n######",
        "#######\n#@$$--#\n#-$$--#\n#....-#\n#######",
    ],
)
def test_hopeless_levels_are_given_up_at_once(rows):
    assert Search(Grid(rows), 200).run(max_nodes=50) is None


def test_boxes_that_block_each_other_for_good_are_seen():
    level = Grid("######\n#@$--#\n#-$--#\n#--..#\n######")
    search = Search(level, 200)
    wall_side, on_goals, free = {9, 10}, {24, 25}, {16, 17}
    assert search.stuck(frozenset(wall_side), 10)
    assert not search.stuck(frozenset(on_goals), 24)
    assert not search.stuck(frozenset(free), 16)


def test_the_search_gives_up_at_its_limit():
    assert Search(TWO_BOXES, 200).run(max_nodes=1) is None
    assert Search(TWO_BOXES, 6).run(max_nodes=1000) is None
    assert Search(TWO_BOXES, 7).run(max_nodes=1000) == "RRLLDRR"


LEVEL = "#####\n#@$.#\n#####\n"


def write(path, *levels):
    path.write_text("".join(f"; {at}\n{rows}\n" for at, rows in enumerate(levels)))
    return str(path)


def test_levels_of_a_file_are_the_tasks(tmp_path):
    longer = LEVEL.replace("\n#@$.#", "\n#@$.#\n#   #")
    wider = [f"{'#' * at}\n#@$.{'-' * (at - 5)}#\n{'#' * at}\n" for at in range(6, 28)]
    path = write(tmp_path / "levels.txt", LEVEL, longer, *wider)
    env = make_env("sokoban-v1", data=path)
    ids = {split: [task.id for task in env.tasks(split)] for split in ("train", "test")}
    assert ids["test"] == ["level-0", "level-10", "level-20"]
    assert len(ids["train"]) == 21
    assert not set(ids["train"]) & set(ids["test"])
    assert env.reset(env.tasks("train")[0], 3).puzzle.text == "#####\n#@$.#\n#---#\n#####"
    assert len(make_env("sokoban-v1", data=path, num_tasks=2).tasks("test")) == 2
    check_env(env)


def test_a_level_that_stands_twice_in_a_file_is_in_one_split(tmp_path):
    longer = LEVEL.replace("\n#@$.#", "\n#@$.#\n#   #")
    env = make_env("sokoban-v1", data=write(tmp_path / "levels.txt", *[LEVEL, longer] * 12))
    texts = {s: {task.data["level"] for task in env.tasks(s)} for s in ("train", "test")}
    assert [len(found) for found in texts.values()] == [1, 1]
    assert not texts["train"] & texts["test"]


@pytest.mark.parametrize(
    ("levels", "reason"),
    [
        ((), "has 0 levels"),
        ((LEVEL,), "has 1 levels"),
        ((LEVEL, LEVEL.replace("@", "?")), r"level 1 has \['\?'\]"),
        ((LEVEL, LEVEL.replace("@", " ")), "level 1 needs one player"),
        ((LEVEL, LEVEL.replace(".", "-")), "level 1 needs one player, as many boxes"),
        ((LEVEL, LEVEL.replace("$.", " *")), "a box that is not on a goal"),
        ((LEVEL, LEVEL.replace("#@", " @")), "level 1 is not a rectangle"),
        ((LEVEL, LEVEL.replace("$", "$ ")), "level 1 is not a rectangle"),
        ((LEVEL, ""), "level 1 is not a rectangle"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path, levels, reason):
    path = write(tmp_path / "levels.txt", *levels)
    with pytest.raises(ValidationError, match=reason):
        make_env("sokoban-v1", data=path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValidationError, match="cannot read the file"):
        make_env("sokoban-v1", data=str(tmp_path / "none.txt"))
    (tmp_path / "rows.txt").write_text(LEVEL)
    with pytest.raises(ValidationError, match="does not begin with"):
        make_env("sokoban-v1", data=str(tmp_path / "rows.txt"))


@pytest.mark.parametrize("name", ["unfiltered_valid_000", "medium_valid_000", "hard_000"])
def test_boxoban_files_are_read(name):
    path = DATA / "boxoban" / f"{name}.txt"
    if not path.is_file():
        pytest.skip(f"no {path}; set PETTINGLLMS_DATA to a folder with boxoban/")
    env = make_env("sokoban-v1", data=str(path))
    assert len(read_levels(str(path))) == 1000
    assert (len(env.tasks("train")), len(env.tasks("test"))) == (900, 100)
    state = env.reset(env.tasks("test")[1], 0)
    assert len(start_of(state.puzzle).boxes) == 4


def test_boxoban_levels_are_solved():
    path = DATA / "boxoban" / "unfiltered_valid_000.txt"
    if not path.is_file():
        pytest.skip(f"no {path}; set PETTINGLLMS_DATA to a folder with boxoban/")
    for level in read_levels(str(path))[:20]:
        plan = solve(level, 200)
        assert plan is not None
        assert simulate(level.text.split("\n"), plan)


@pytest.mark.parametrize(
    "options", [{"num_boxes": 5}, {"width": 4}, {"max_moves": 5}, {"num_pulls": 0}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValidationError):
        make_env("sokoban-v1", **options)


def test_the_drawing_shows_where_a_plan_ends():
    env = make_env("sokoban-v1")
    assert "plan" not in env.paint(TWO_BOXES, None)
    assert "after the plan" in env.paint(TWO_BOXES, "RR")
    assert "where the plan stops" in env.paint(TWO_BOXES, "U")


def test_the_key_of_version_0_1_is_refused():
    with pytest.raises(ValidationError, match="unknown key; known: .*data"):
        make_env("sokoban-v1", levels="a.txt")
