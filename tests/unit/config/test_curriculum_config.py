"""What a curriculum may say, and what follows for the environment's section."""

import re

import pytest
from toys import Relay

from pettingllms.config import RunConfig, parse_config, to_toml
from pettingllms.config.load import load_config
from pettingllms.envs import make_env_at
from pettingllms.errors import ConfigError


def run(curriculum: dict | None, env: dict | None = None, **sections: object) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "plan_path-v1", **(env or {})},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": "m"}},
            **({} if curriculum is None else {"curriculum": curriculum}),
            **sections,
        }
    )


EXPLOITABILITY_METRICS = {"key": "min_distance", "levels": [2, 4, 6]}


def test_the_environment_of_each_level() -> None:
    config = run(EXPLOITABILITY_METRICS)
    assert [config.env_at(level).min_distance for level in (1, 2, 3)] == [2, 4, 6]
    assert config.env.min_distance == 2, "a run begins with the first level"
    assert make_env_at(config, 2).config.min_distance == 4


def test_the_id_of_an_environment_says_its_level() -> None:
    assert make_env_at(run(EXPLOITABILITY_METRICS), 3).id == "plan_path-v1[min_distance=6]"
    assert make_env_at(run(None), 1).id == "plan_path-v1"


def test_levels_hold_for_one_role_alone_too() -> None:
    config = run(EXPLOITABILITY_METRICS, {"solo": True})
    env = make_env_at(config, 2)
    assert env.roles == ("solver",)
    assert env.config.min_distance == 4


def test_without_a_curriculum_the_environment_is_as_it_was_given() -> None:
    config = run(None, {"min_distance": 5})
    assert config.env_at(1) == config.env
    assert config.env.min_distance == 5


def test_the_resolved_file_reads_back_as_the_same_run(tmp_path) -> None:
    path = tmp_path / "resolved.toml"
    levels = {"key": "wall_share", "levels": [0, 0.2, 0.4], "lower_at": 0.1, "role": "planner"}
    config = run(levels)
    path.write_text(to_toml(config))
    assert load_config(path) == config


class Broken(Relay):
    """Cannot be made with a bonus."""

    class Config(Relay.Config):
        bonus: int = 0
        """Never part of a reward."""

    def __init__(self, config=None) -> None:
        super().__init__(config)
        if self.config.bonus:
            raise RuntimeError("no database")


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (
            {"curriculum": {"key": "min_distanc", "levels": [2]}},
            "curriculum.key: 'plan_path-v1' has no option 'min_distanc'; did you mean 'min_dist",
        ),
        ({"curriculum": {"key": "solo", "levels": [True]}}, "curriculum.key: .* no option 'solo'"),
        (
            {"curriculum": {"key": "min_distance", "levels": [2, 40]}},
            "curriculum.levels: .* min_distance = 40: min_distance is 40, but a .* grid .* lower",
        ),
        (
            {"curriculum": {"key": "min_distance", "levels": ["far"]}},
            "cannot have min_distance = 'far': Input should be a valid integer",
        ),
        (
            {
                "env": {"id": "hanabi-v1"},
                "curriculum": {"key": "num_players", "levels": [2, 3]},
            },
            "num_players = 3: its roles would be player_1, player_2, player_3, but roles",
        ),
        (
            {
                "env": {"id": f"{__name__}:Broken"},
                "curriculum": {"key": "bonus", "levels": [0, 1]},
            },
            "cannot have bonus = 1: RuntimeError: no database",
        ),
        ({"curriculum": {"key": "min_distance"}}, "curriculum: key and levels go together"),
        ({"curriculum": {"levels": [1]}}, "curriculum: key and levels go together"),
        (
            {"curriculum": {**EXPLOITABILITY_METRICS, "lower_at": 0.8}},
            "curriculum: lower_at is 0.8, not below raise_at = 0.8",
        ),
        (
            {"curriculum": {**EXPLOITABILITY_METRICS, "role": "planer"}},
            "curriculum.role: .* has no such role; did you mean 'planner'",
        ),
        (
            {"curriculum": EXPLOITABILITY_METRICS, "eval": {"level": 4}},
            "eval.level: is 4, and curriculum.levels has 3",
        ),
        (
            {"curriculum": None, "eval": {"level": 1}},
            "eval.level: is 1, and curriculum.levels has 0",
        ),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(sections: dict, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(**sections)
    assert any(re.search(expected, problem) for problem in caught.value.problems)
    assert len(caught.value.problems) == 1


def test_what_the_curriculum_sets_is_not_set_beside_it() -> None:
    with pytest.raises(ConfigError, match=r"env.min_distance: is 9.*starts it at 2.*eval.level"):
        run(EXPLOITABILITY_METRICS, {"min_distance": 9})
    assert run(EXPLOITABILITY_METRICS, {"min_distance": 2}).env.min_distance == 2, (
        "as a resolved file has it"
    )
