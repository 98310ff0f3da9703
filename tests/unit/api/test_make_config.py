"""Configurations from files, tables, objects, keywords and classes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toys import Relay

import pettingllms as pl
from pettingllms.api.user_classes import env_section, name_class
from pettingllms.errors import ConfigError, UnknownNameError
from pettingllms.registry import ENVIRONMENTS

TOML = """
[env]
id = "tic_tac_toe-v1"
terse = true
[algo]
type = "grpo"
[policies.p]
kind = "full"
model = "m"
"""


def test_a_file_a_table_and_an_object_are_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TOML)
    table = {
        "env": {"id": "tic_tac_toe-v1", "terse": True},
        "algo": {"type": "grpo"},
        "policies": {"p": {"kind": "full", "model": "m"}},
    }
    one = pl.make_config(path)
    assert one == pl.make_config(str(path)) == pl.make_config(table) == pl.load_config(path)
    assert pl.make_config(one) is one
    assert pl.make_config(one, seed=3) == one.model_copy(update={"seed": 3})


def test_keywords_alone_make_a_run() -> None:
    config = pl.make_config(model="m", env="tic_tac_toe-v1", lr=1e-6, num_steps=7)
    assert config.algo.type == "grpo"
    assert config.policies["policy"].model_dump(include={"kind", "model", "lr"}) == {
        "kind": "full",
        "model": "m",
        "lr": 1e-6,
    }
    assert config.roles == {"player_x": "policy", "player_o": "policy"}
    assert config.train.num_steps == 7


def test_keywords_change_single_keys_of_sections() -> None:
    base = {"rollout": {"num_tasks": 3, "num_samples": 5}}
    config = pl.make_config(
        base,
        env={"id": "tic_tac_toe-v1"},
        model="m",
        algo="rloo",
        rollout={"num_samples": 6},
        overrides=["rollout.max_steps=9", "seed=4"],
    )
    assert (config.rollout.num_tasks, config.rollout.num_samples) == (3, 6)
    assert (config.rollout.max_steps, config.seed, config.algo.type) == (9, 4, "rloo")
    assert base == {"rollout": {"num_tasks": 3, "num_samples": 5}}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"env": "tic_tac_toe-v1", "model": "m", "rolout": {}}, "did you mean 'rollout'"),
        ({"env": 3, "model": "m"}, "env.*got 3; give a name, a table"),
        ({"config": 3}, "got 3; give a TOML file, a dict or a RunConfig"),
        ({"config": {"policies": {"p": {}}}, "model": "m"}, "has policies already"),
        ({"env": "tic_tac_toe-v1", "lr": 1.0}, "lr.*goes with model"),
        ({"env": dict, "model": "m"}, "is no subclass of pettingllms.Environment"),
    ],
)
def test_problems_are_reported(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){reason}"):
        pl.make_config(**arguments)


def test_a_class_of_a_module_gets_a_name_that_loads_it_anywhere() -> None:
    name = name_class(Relay)
    assert name == f"{Path(sys.modules[Relay.__module__].__file__ or '').resolve()}:Relay"
    assert ENVIRONMENTS.load(name) is Relay
    assert pl.make_config(model="m", env=Relay).env.id == name
    assert pl.make_config({"env": {"id": Relay}}, model="m").env.id == name
    assert pl.make_config(model="m", env=Relay()).env.id == name


def test_environments_that_ship_keep_their_names() -> None:
    env = pl.make_env("tic_tac_toe-v1", terse=True)
    assert env_section(type(env)) == {"id": "tic_tac_toe-v1"}
    assert pl.make_config(model="m", env=env).env == env.config
    solo = pl.make_env("tic_tac_toe-v1", solo=True)
    assert pl.make_config(model="m", env=solo).env == solo.config


def test_an_algorithm_class_is_accepted() -> None:
    class Mine(pl.make_algorithm("grpo").__class__):  # type: ignore[misc]
        pass

    config = pl.make_config(model="m", env="tic_tac_toe-v1", algo=Mine)
    assert config.algo.type.startswith("session:")
    assert isinstance(pl.make_algorithm(config.algo.type), Mine)


def test_a_class_of_a_function_is_known_to_this_process_only(tmp_path: Path) -> None:
    class Local(Relay):
        pass

    config = pl.make_config(model="m", env=Local)
    assert config.env.id.startswith("session:")
    assert pl.parse_config(config.model_dump(exclude_none=True)) == config
    load = f"from pettingllms.registry import ENVIRONMENTS; ENVIRONMENTS.load({config.env.id!r})"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
    assert "defined in a notebook, an interactive session or a function" in done.stderr
    assert "resume(env=...)" in done.stderr


def test_objects_with_state_keep_it_and_have_distinct_names() -> None:
    one, two = (pl.single_turn([{"prompt": text}], len) for text in ("one", "two"))
    configs = [pl.make_config(model="m", env=env) for env in (one, two)]
    assert configs[0].env.id != configs[1].env.id
    assert pl.make_config(model="m", env=one) == configs[0]
    for config, text in zip(configs, ("one", "two"), strict=True):
        made = ENVIRONMENTS.load(config.env.id).create(config.env)
        assert made.tasks("train")[0].data == {"prompt": text}
    with pytest.raises(ConfigError, match="terse: the environment is given as an object"):
        pl.make_config({"env": {"terse": True}}, model="m", env=one)


def test_a_name_of_another_session_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(UnknownNameError, match="pass it again"):
        ENVIRONMENTS.load("session:NoSuchClass")
