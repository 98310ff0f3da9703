"""The numbered examples that need engines run as they stand, and what they show is so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def _output(name: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=600, check=False
    )
    print(done.stdout, done.stderr[-2000:])
    assert done.returncode == 0
    return done.stdout


def _shares(output: str, pattern: str) -> list[int]:
    return [int(share) for share in re.findall(pattern, output)]


@pytest.mark.engine
def test_two_roles_find_a_code() -> None:
    arrived = _shares(_output("02_train_two_roles.py"), r"receiver reward \S+ success (\d+)%")
    assert sum(arrived[-3:]) / 3 > 80 > sum(arrived[:3]) / 3


@pytest.mark.engine
def test_self_play_beats_what_it_began_as() -> None:
    table = _output("04_self_play_and_ratings.py")
    order = re.findall(r"^(nash|random|trained|untrained) ", table, re.MULTILINE)
    assert order.index("trained") < order.index("untrained")
    assert order[-1] == "untrained"


@pytest.mark.engine
def test_a_plain_program_learns() -> None:
    pytest.importorskip("openai")
    output = _output("06_bring_your_own_agent.py")
    for role in ("giver", "adder"):
        shares = _shares(output, rf"{role} reward \S+ success (\d+)%")
        assert sum(shares[-3:]) / 3 > sum(shares[:3]) / 3 + 10, role
