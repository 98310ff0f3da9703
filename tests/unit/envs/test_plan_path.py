"""Mazes, walks and their scores."""

import random

import pytest
from pydantic import ValidationError

from pettingllms.envs import make_env
from pettingllms.envs.puzzles.plan_path.levels import (
    blind_plan,
    make_maze,
    random_walk,
    score_walk,
    shortest_plan,
    walk,
)
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.grid import Grid, shortest_walk

MAZE = Grid("S..\n##.\nG..")
"""Shortest plan: RRDDLL."""


def independent_distance(maze):
    """Steps from S to G, by rows and columns, without the code under test."""
    rows = maze.text.split("\n")
    where = {c: (y, x) for y, row in enumerate(rows) for x, c in enumerate(row)}
    front, seen, steps = {where["S"]}, set(), 0
    while front and where["G"] not in front:
        seen |= front
        near = {(y + dy, x + dx) for y, x in front for dy, dx in ((1, 0), (-1, 0), (0, 1), (0, -1))}
        front = {
            (y, x)
            for y, x in near - seen
            if 0 <= y < len(rows) and 0 <= x < len(rows[0]) and rows[y][x] != "#"
        }
        steps += 1
    return steps if front else None


@pytest.mark.parametrize(
    ("plan", "score"),
    [
        ("RRDDLL", 1.0),
        ("RRDDLLRL", 1.0),
        ("RRDDLLR", 0.9 * 5 / 6),
        ("RRDDLLL", 0.9),
        ("RRDD", 0.9 * 4 / 6),
        ("RRR", 0.9 * 2 / 6),
        ("D", 0.0),
        ("U", 0.0),
        ("L", 0.0),
        ("RL", 0.0),
    ],
)
def test_score(plan, score):
    assert score_walk(MAZE, plan) == pytest.approx(score)


def test_a_walk_stops_at_the_first_impossible_move():
    cells, whole = walk(MAZE, "RDRRDD")
    assert (cells, whole) == ([0, 1], False)


def test_no_way_is_no_walk():
    walled = Grid("S#G\n.#.")
    assert shortest_walk(walled.floor(), 0, 2, walled.steps) is None


@pytest.mark.parametrize(
    ("width", "height", "wall_share", "min_distance", "max_moves"),
    [(6, 6, 0.25, 4, 64), (6, 6, 0.6, 10, 64), (2, 2, 0.6, 2, 2), (9, 4, 0.5, 5, 6)],
)
def test_mazes_are_as_asked(width, height, wall_share, min_distance, max_moves):
    for seed in range(40):
        maze = make_maze(seed, width, height, wall_share, min_distance, max_moves)
        assert [len(row) for row in maze.text.split("\n")] == [width] * height
        assert maze.text.count("#") <= round(wall_share * width * height)
        distance = independent_distance(maze)
        assert distance is not None
        assert min_distance <= distance <= max_moves
        assert len(shortest_plan(maze)) == distance


def test_the_usual_maze_has_its_walls():
    walls = [make_maze(seed, 6, 6, 0.25, 4, 64).text.count("#") for seed in range(100)]
    assert sum(count == 9 for count in walls) > 90


@pytest.mark.parametrize("answer", ["RRDDLL", "R R D D L L", "R,R, D,D\nL L", "  RRD DLL  "])
def test_moves_are_read(answer):
    assert make_env("plan_path-v1").read(MAZE, answer) == "RRDDLL"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("RRXD", "'X' is not a move"),
        ("R-R", "'-' is not a move"),
        ("ＲＲ", "'Ｒ' is not a move"),
        (", ,", "no move in the plan"),
        ("R" * 65, "65 moves, but a plan has at most 64"),
    ],
)
def test_refusals_say_why(answer, reason):
    with pytest.raises(BadReply, match=reason):
        make_env("plan_path-v1").read(MAZE, answer)


@pytest.mark.parametrize(
    "options", [{"min_distance": 11}, {"max_moves": 3}, {"wall_share": 0.9}, {"width": 1}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValidationError):
        make_env("plan_path-v1", **options)


def test_the_drawing_shows_the_walk():
    env = make_env("plan_path-v1")
    assert "·" not in env.paint(MAZE, None)
    assert env.paint(MAZE, "RRD").count("··") == 3


@pytest.mark.parametrize("rows_first", [True, False])
def test_a_blind_plan_is_straight_and_ends_on_the_goal_of_an_empty_maze(rows_first):
    empty = Grid("...G\n....\nS...")
    plan = blind_plan(empty, rows_first)
    assert plan == ("RRRUU" if rows_first else "UURRR")
    assert score_walk(empty, plan) == 1.0
    assert score_walk(MAZE, blind_plan(MAZE, rows_first)) < 1.0


def test_a_random_walk_hits_no_wall_and_is_no_solution():
    for seed in range(300):
        maze = make_maze(seed, 6, 6, 0.25, 2, 12)
        rng = random.Random(seed)
        plan = random_walk(maze, rng.randint(1, 12), rng)
        cells, whole = walk(maze, plan)
        assert plan
        assert score_walk(maze, plan) < 1.0
        assert maze.text[cells[-1]] != "G"
        assert whole or len(plan) == 1  # its only move would have reached the goal


def test_walking_blindly_solves_fewer_than_four_in_ten_of_the_larger_mazes():
    env = make_env(
        "plan_path-v1", width=6, height=6, wall_share=0.25, min_distance=4, max_moves=12,
        max_rounds=1, num_tasks=1000,
    )  # fmt: skip
    solved = 0
    for number, task in enumerate(env.tasks("test")):
        state, rng = env.reset(task, 0), random.Random(number)
        while acting := env.acting(state):
            reply = env.players["blind"](env, state, acting[0], rng)
            state = env.step(state, {acting[0]: reply}).state
        solved += env.success(state, "planner")
    assert 250 < solved < 400
