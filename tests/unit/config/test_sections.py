"""Optional sections are absent unless a file has them, and `show-config` prints what is used."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pettingllms.config import GuardConfig, load_config, parse_config, to_toml
from pettingllms.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.toml"))
TEXTS = {path: path.read_text() for path in CONFIGS}
SHORT = [p for p, text in TEXTS.items() if len(text.splitlines()) <= 15 and "extends" not in text]
OPTIONAL = ("league", "co_players", "judge", "curriculum", "guard", "critic")
COMMANDS = ("sft", "dpo", "verifier")
BASE: dict[str, Any] = {
    "env": {"id": "tic_tac_toe-v1"},
    "algo": {"type": "grpo"},
    "policies": {"p": {"kind": "full", "model": "m"}},
}


def num_keys(table: dict[str, Any]) -> int:
    return sum(num_keys(value) if isinstance(value, dict) else 1 for value in table.values())


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.stem)
def test_a_short_file_prints_fewer_than_70_keys(path: Path) -> None:
    printed = tomllib.loads(to_toml(load_config(path), used_only=True))
    assert num_keys(printed) < 70
    assert not {*OPTIONAL, *COMMANDS} & printed.keys() - {"critic"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_what_is_printed_reads_back_as_the_same_run(path: Path) -> None:
    config = load_config(path)
    for used_only in (True, False):
        assert parse_config(tomllib.loads(to_toml(config, used_only))) == config


def test_absent_sections_are_none_and_guards_have_their_defaults() -> None:
    config = parse_config(BASE)
    assert all(getattr(config, name) is None for name in (*OPTIONAL, *COMMANDS))
    assert config.active_guard == GuardConfig()
    assert config.active_guard.action == "pause"
    assert parse_config({**BASE, "guard": {"action": "warn"}}).active_guard.action == "warn"


def test_changed_options_are_printed_even_without_effect() -> None:
    config = parse_config({**BASE, "rollout": {"select": "sampled"}, "train": {"eval_every": 0}})
    printed = config.used_options()
    assert printed["rollout"]["select"] == "sampled"
    assert "continuation" not in printed["rollout"]
    assert "eval_every" not in printed["train"]


def test_train_drops_the_sections_of_other_commands() -> None:
    config = parse_config({**BASE, "sft": {"player": "minimax"}, "dpo": {}, "verifier": {}})
    assert config.sft is not None
    assert config.sft.player == "minimax"
    assert "sft" not in tomllib.loads(to_toml(config.for_training()))
    assert config.for_training() == parse_config(BASE)


@pytest.mark.parametrize("name", COMMANDS)
def test_train_still_reports_mistakes_in_the_sections_of_other_commands(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}\.num_stepz: unknown key"):
        parse_config({**BASE, name: {"num_stepz": 3}})


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("league", "league: has no opponents; set snapshot_every"),
        ("co_players", "co_players: has no phases"),
        ("curriculum", "curriculum: key and levels are missing"),
    ],
)
def test_a_section_that_would_do_nothing_is_rejected(section: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_config({**BASE, section: {}})
