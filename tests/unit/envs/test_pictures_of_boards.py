import itertools
from typing import Any

import pytest

from pettingllms.envs import check_env, make_env
from pettingllms.envs.puzzles.sokoban.env import draw_level
from pettingllms.types import system
from pettingllms.vision.images import open_image

BOARDS = ("plan_path-v1", "sokoban-v1", "sudoku-v1", "tic_tac_toe-v1")


def first(env: Any, task: int = 0) -> Any:
    return env.reset(env.tasks("train")[task], 0)


@pytest.mark.parametrize("solo", [False, True])
@pytest.mark.parametrize("observation", ["image", "both"])
@pytest.mark.parametrize("name", BOARDS)
def test_boards_that_are_seen_keep_the_contract(name: str, observation: str, solo: bool) -> None:
    env = make_env(name, observation=observation, solo=solo)
    assert env.image_roles == env.roles
    check_env(env, num_episodes=2)


@pytest.mark.parametrize("terse", [False, True])
@pytest.mark.parametrize("name", BOARDS)
def test_an_image_replaces_the_text_or_accompanies_it(name: str, terse: bool) -> None:
    text, image, both = (
        make_env(name, observation=how, terse=terse) for how in ("text", "image", "both")
    )
    state, role = first(text), text.roles[0]
    *_, read = text.observe(state, role)
    *_, seen = image.observe(state, role)
    *_, mixed = both.observe(state, role)
    assert text.image_roles == () == read.parts
    assert len(seen.images) == 1
    assert mixed.images == seen.images
    assert mixed.content == read.content
    assert len(seen.content) < len(read.content)
    missing = set(read.content.split("\n")) - set(seen.content.split("\n"))
    assert missing, "the board's rows"


@pytest.mark.parametrize("name", BOARDS)
def test_the_rules_explain_what_is_shown(name: str) -> None:
    rules = {}
    for how in ("text", "image", "both"):
        env = make_env(name, observation=how)
        rules[how], *_ = env.observe(first(env), env.roles[0])
        assert rules[how].speaker == system("").speaker
    assert "picture" not in rules["text"].content
    assert "picture" in rules["image"].content
    assert "# wall" not in rules["image"].content
    assert "picture" in rules["both"].content


@pytest.mark.parametrize("name", BOARDS[:3])
def test_puzzles_that_differ_look_different(name: str) -> None:
    env = make_env(name, observation="image")
    puzzles = [env.puzzle(env.tasks("train")[at]) for at in range(20)]
    assert len({env.picture(puzzle) for puzzle in puzzles}) == len(set(puzzles)) > 10


def test_every_board_of_tic_tac_toe_looks_different() -> None:
    env = make_env("tic_tac_toe-v1", observation="image")
    boards = {env.reset(task, 0) for task in env.tasks("train")[:5]}
    for _ in range(3):
        boards |= {
            env.step(board, {board.mover: reply}).state
            for board in boards
            for reply in env.legal(board, board.mover)
        }
    cells = {board.cells for board in boards}
    images = {env.observe(board, "player_x")[-1].images for board in boards}
    assert len(images) == len(cells) > 100


def test_every_symbol_of_sokoban_has_a_distinct_look() -> None:
    looks = [draw_level(f"{symbol}-\n--", 28) for symbol in "#-@$.*+"]
    assert all(one != other for one, other in itertools.combinations(looks, 2))


@pytest.mark.parametrize("cell", [12, 28, 50])
def test_the_size_is_by_configuration(cell: int) -> None:
    env = make_env("plan_path-v1", observation="image", width=5, height=7, cell_pixels=cell)
    (image,) = env.observe(first(env), "planner")[-1].images
    assert open_image(image).size == (5 * cell, 7 * cell)
