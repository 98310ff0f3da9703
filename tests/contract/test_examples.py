"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

from pettingllms.envs import check_env, make_env

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("[0-9][0-9]_*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path: Path) -> None:
    subprocess.run([sys.executable, path], check=True, timeout=120)


def test_the_first_example_is_a_sound_environment_of_about_sixty_lines() -> None:
    path = FOLDER / "01_write_an_environment.py"
    check_env(make_env(f"{path}:RockPaperScissors"), num_episodes=40)
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= 70
