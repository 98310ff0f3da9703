"""A user's algorithm that breaks its contract is named in an error before training starts."""

from pathlib import Path

import numpy as np
import pytest
from toys import Relay, roll

from pettingllms.algos import Algorithm
from pettingllms.algos.grpo import Grpo
from pettingllms.config import parse_config
from pettingllms.errors import ConfigError


def assign(algorithm: Algorithm) -> list[float | None]:
    episodes = roll(Relay(), num_tasks=1, num_samples=4)
    algorithm.assign(episodes)
    return [turn.credit.advantage for episode in episodes for turn in episode.turns]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            lambda group: [float("nan")] * len(group.members),
            r"advantages\(\) gave nan; expected fin",
        ),
        (lambda group: [1.0], r"advantages\(\) gave 1 numbers; expected 8, one per"),
        (lambda group: None, r"advantages\(\) gave None; expected a list of numbers"),
        (lambda group: ["a"] * len(group.members), r"advantages\(\) gave 'a'; expected finite"),
    ],
)
def test_advantages_that_are_no_numbers_are_refused(given, words) -> None:
    class Own(Grpo):
        def advantages(self, group):
            return given(group)

    with pytest.raises(ConfigError, match=f"algorithm Own: 1 problem\n  - {words}"):
        assign(Own())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda groups: None, r"groups\(\) gave None; expected a list of Group"),
        (lambda groups: [*groups, *groups], r"groups\(\) gave a turn of '.' twice"),
    ],
)
def test_groups_that_are_none_are_refused(given, words) -> None:
    class Own(Grpo):
        def groups(self, episodes):
            return given(super().groups(episodes))

    with pytest.raises(ConfigError, match=words):
        assign(Own())


def test_numbers_of_an_array_are_taken_as_such() -> None:
    class Own(Grpo):
        def advantages(self, group):
            return np.linspace(-1, 1, len(group.members), dtype=np.float32)

    assert {type(number) for number in assign(Own())} == {float}


def test_an_unknown_need_is_refused_where_the_class_is_written() -> None:
    with pytest.raises(TypeError, match="Own.needs has unknown 'fork'; did you mean 'forks'?"):

        class Own(Grpo):
            needs = frozenset({"fork"})

    with pytest.raises(TypeError, match="Own.needs has unknown 'fork'"):

        class Own(Grpo):
            needs = "fork"


def test_a_half_written_algorithm_is_refused_with_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("import pettingllms as pl\n\n\nclass Own(pl.Algorithm): ...\n")
    data = {
        "env": {"id": "plan_path-v1"},
        "algo": {"type": f"{file}:Own"},
        "policies": {"p": {"kind": "full", "model": "m"}},
    }
    with pytest.raises(ConfigError, match="own.py:Own' has no advantages and no groups"):
        parse_config(data)
    with pytest.raises(ConfigError, match=r"name the class in the file as well, '.*own.py:CLASS'"):
        parse_config({**data, "algo": {"type": str(file)}})
