from pathlib import Path

import pytest

from pettingllms.errors import UnknownNameError
from pettingllms.registry import ENVIRONMENTS, Registry


def test_a_wrong_name_gives_the_nearest_right_one() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sokoban-v1'"):
        ENVIRONMENTS.load("soko-ban-v1")


def test_a_name_far_from_all_gives_all() -> None:
    with pytest.raises(UnknownNameError, match="known: .*hanabi-v1, .*sudoku-v1"):
        ENVIRONMENTS.load("zzz")


def test_a_class_in_a_file_can_be_loaded_twice(tmp_path: Path) -> None:
    path = tmp_path / "my_own_env.py"
    path.write_text("class Mine: pass\n")
    one = ENVIRONMENTS.load(f"{path}:Mine")
    assert ENVIRONMENTS.load(f"{path}:Mine") is one


def test_a_file_may_not_hide_a_module(tmp_path: Path) -> None:
    path = tmp_path / "random.py"
    path.write_text("class Mine: pass\n")
    with pytest.raises(UnknownNameError, match="would hide the module 'random'"):
        ENVIRONMENTS.load(f"{path}:Mine")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_package.env:Mine", "No module named"),
        ("pettingllms.envs:NoSuchClass", "no attribute 'NoSuchClass'"),
        ("nowhere/at_all.py:Mine", "there is no file nowhere/at_all.py"),
    ],
)
def test_what_cannot_be_loaded_says_why(target: str, reason: str) -> None:
    with pytest.raises(UnknownNameError, match=reason):
        ENVIRONMENTS.load(target)


def test_an_error_inside_a_module_is_not_hidden(tmp_path: Path) -> None:
    path = tmp_path / "broken_module_of_mine.py"
    path.write_text("raise RuntimeError('boom')\n")
    with pytest.raises(RuntimeError, match="boom"):
        Registry("environment", {}).load(f"{path}:Mine")
