"""A game of a library is an environment by name, and no other module imports its library."""

import subprocess
import sys
import tomllib
from typing import Any

import pytest

from pettingllms.config import parse_config
from pettingllms.envs import make_env
from pettingllms.envs.adapters import library
from pettingllms.errors import ConfigError, LibraryError, UnknownNameError
from pettingllms.registry import ENVIRONMENTS

pytest.importorskip("pyspiel", reason="needs the games extra")
pytest.importorskip("pettingzoo", reason="needs the games extra")
pytest.importorskip("textarena", reason="needs the games extra")

LIBRARIES = ("pyspiel", "pettingzoo", "textarena", "open_spiel", "rlcard", "pygame", "nltk")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("openspiel:tic_tac_to", "tic_tac_toe"),
        ("pettingzoo:tictactoe", "tictactoe-v3"),
        ("textarena:TicTacToe-v9", "TicTacToe-v0"),
    ],
)
def test_a_wrong_name_gives_the_nearest_right_one(name: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown game '{name}'; did you mean '{nearest}'"):
        make_env(name)


def test_nothing_imports_a_library_before_a_game_is_asked_for() -> None:
    code = (
        "import sys, pettingllms; from pettingllms.registry import ENVIRONMENTS; "
        "from pettingllms.cli.main import app; "
        "[ENVIRONMENTS.load(f'{name}:any').Config for name in ENVIRONMENTS.libraries]; "
        "app(['envs', '--all'], standalone_mode=False); "
        f"sys.exit(str(sorted(set({LIBRARIES!r}) & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
    assert "openspiel:chess" in done.stdout


def test_a_library_that_is_not_installed_says_what_to_install() -> None:
    with pytest.raises(LibraryError, match=r"pip install 'pettingllms\[openspiel\]'"):
        library.import_library("no_such_pyspiel", "openspiel")


CONFIG = """
[env]
id = "{game}"

[algo]
type = "{algo}"

[policies.shared]
kind = "full"
model = "m"

[rollout]
continuation = "episode"
"""


def read(game: str, algo: str = "grpo") -> Any:
    return parse_config(tomllib.loads(CONFIG.format(game=game, algo=algo)))


def test_a_configuration_names_a_game_and_its_roles() -> None:
    config = read("openspiel:tic_tac_toe", "at_grpo")
    assert config.roles == {"player_0": "shared", "player_1": "shared"}
    assert read("pettingzoo:go-v5").roles.keys() == {"black_0", "white_0"}
    assert len(read("textarena:SecretMafia-v0").roles) == 6


def test_a_configuration_with_a_game_that_cannot_be_played_says_why() -> None:
    with pytest.raises(ConfigError, match="mfg_garnet.*mean field game"):
        read("openspiel:mfg_garnet")
    with pytest.raises(ConfigError, match="needs the network: it downloads word lists"):
        read("textarena:Wordle-v0")
    with pytest.raises(ConfigError, match="cannot be played: the game crashed: SpielError"):
        read("openspiel:crossword")


def test_a_file_and_a_module_are_still_found_by_their_names() -> None:
    assert ENVIRONMENTS.load("pettingllms.envs.puzzles.sudoku:Sudoku").id == "sudoku-v1"
    with pytest.raises(UnknownNameError, match="there is no file openspiel.py"):
        ENVIRONMENTS.load("openspiel.py:Mine")
