import pickle
from pathlib import Path

import pytest

from pettingllms.errors import UnknownNameError
from pettingllms.registry import ENVIRONMENTS, absolute


def test_a_wrong_name_gives_the_nearest_right_one() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sokoban-v1'"):
        ENVIRONMENTS.load("soko-ban-v1")


def test_a_name_far_from_all_gives_all() -> None:
    with pytest.raises(UnknownNameError, match="known: .*hanabi-v1, .*sudoku-v1"):
        ENVIRONMENTS.load("zzz")


SOUND = "import pettingllms\n\nclass Mine(pettingllms.Environment): pass\n"


def test_a_class_in_a_file_can_be_loaded_twice(tmp_path: Path) -> None:
    path = tmp_path / "my_own_env.py"
    path.write_text(SOUND)
    one = ENVIRONMENTS.load(f"{path}:Mine")
    assert ENVIRONMENTS.load(f"{path}:Mine") is one
    assert pickle.loads(pickle.dumps(one)) is one  # noqa: S301 - bytes that we made just now


def test_a_file_hides_no_module(tmp_path: Path) -> None:
    path = tmp_path / "wave.py"
    path.write_text(SOUND)
    ENVIRONMENTS.load(f"{path}:Mine")
    import wave

    assert "Wave_read" in dir(wave)


def test_a_path_is_written_out_and_a_name_is_not() -> None:
    assert absolute("my/env.py:Mine") == f"{Path.cwd()}/my/env.py:Mine"
    assert absolute("hanabi-v1") == "hanabi-v1"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_package.env:Mine", "No module named"),
        ("pettingllms.envs:NoSuchClass", "has no 'NoSuchClass'; known: "),
        ("nowhere/at_all.py:Mine", "there is no file nowhere/at_all.py"),
        ("pettingllms.envs:check_env", "is no environment; write class"),
        ("..a:b", "cannot be loaded"),
    ],
)
def test_what_cannot_be_loaded_says_why(target: str, reason: str) -> None:
    with pytest.raises(UnknownNameError, match=reason):
        ENVIRONMENTS.load(target)


@pytest.mark.parametrize("code", ["raise RuntimeError('boom')", "def ("])
def test_an_error_inside_a_module_is_named_and_kept(tmp_path: Path, code: str) -> None:
    path = tmp_path / "broken_module_of_mine.py"
    path.write_text(code)
    with pytest.raises(UnknownNameError, match="boom|SyntaxError") as caught:
        ENVIRONMENTS.load(f"{path}:Mine")
    assert isinstance(caught.value.__cause__, RuntimeError | SyntaxError)
