"""Names of version 0.1: rejected in a user's file, read in run folders."""

from pathlib import Path
from typing import Any

import pytest

from pettingllms.config import RunConfig, load_config, parse_config
from pettingllms.config.renames import KEYS, VALUES, migrate, migrate_metrics, new_name
from pettingllms.errors import ConfigError

ROOT = Path(__file__).parents[3]
RUNS = ROOT / "tests" / "data" / "runs_0_1"
BASE: dict[str, Any] = {
    "env": {"id": "tic_tac_toe-v1"},
    "algo": {"type": "grpo"},
    "policies": {"p": {"kind": "full", "model": "m"}},
}
NEEDED = {"company": {"phases": [1]}, "judge": {"by": "rule"}}
"""Keys without which a section counts as unused."""


def old_data(key: str) -> dict[str, Any]:
    """A configuration with one old key."""
    section, *rest = key.replace("*", "p").split(".")
    table: Any = {**NEEDED, **BASE}.get(section, {})
    if len(rest) == 2:
        table = {rest[0]: {**table[rest[0]], rest[1]: 1}}
    elif rest:
        table = {**table, rest[0]: 1}
    return {**BASE, section: table}


@pytest.mark.parametrize("key", KEYS)
def test_a_renamed_key_is_rejected_with_its_new_name(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(old_data(key))
    if key.startswith("company"):
        assert caught.value.problems == ["company: renamed; write co_players"]
        return
    old, new = key.replace("*", "p"), KEYS[key].replace("*", "p")
    assert f"{old}: renamed; write {new}" in caught.value.problems


@pytest.mark.parametrize("key", [key for key in KEYS if key != "loss.beta"])
def test_a_renamed_key_is_read_from_a_run_folder(key: str) -> None:
    data: Any = migrate(old_data(key))
    for part in KEYS[key].replace("*", "p").split("."):
        data = data[part]
    assert data == (NEEDED["company"] if key == "company" else 1)


def test_beta_moves_to_the_section_of_dpo() -> None:
    data = migrate({"loss": {"type": "clip", "beta": 0.3}, "dpo": {"episodes": ["e.jsonl"]}})
    assert data == {"loss": {"type": "clip"}, "dpo": {"episodes": ["e.jsonl"], "beta": 0.3}}


@pytest.mark.parametrize(("where", "new"), VALUES.items())
def test_a_renamed_value_is_read_from_a_run_folder(where: tuple[str, str], new: str) -> None:
    (section, _, key), old = where[0].partition("."), where[1]
    assert migrate({section: {key: old}}) == {section: {key: new}}


def test_keys_that_were_not_renamed_have_no_new_name() -> None:
    assert new_name("rollout.num_tasks") is None
    assert new_name("policies.p.sees") == "policies.p.supports_images"


def read(name: str) -> RunConfig:
    return load_config(RUNS / f"{name}.toml", of_run=True)


def test_a_run_of_0_1_with_judge_and_co_players_stays_readable() -> None:
    config = read("co_players")
    assert config.judge is not None
    assert (config.judge.by, config.judge.timeout) == ("talk", 60.0)
    assert config.judge.max_held_out_gap == 0.2
    assert config.co_players is not None
    assert config.co_players.roles == ["seller"]
    assert config.co_players.phases[0].members == {"script:noisy": 1.0, "p@0": 1.0}
    assert config.active_guard.action == "warn"
    assert config.active_guard.anchors == ["noisy~0.3"]
    assert config.sft is not None
    assert config.sft.player == "noisy"
    assert config.dpo is not None
    assert config.verifier is not None
    assert config.league is None
    assert config.curriculum is None
    assert config.critic is None


def test_a_run_of_0_1_with_a_league_stays_readable() -> None:
    config = read("league")
    assert config.league is not None
    assert config.league.anchors == ["noisy"]
    assert config.critic is not None
    assert config.loss.entropy_coef == 0.02
    assert config.inference.max_model_len == 256
    assert config.cluster.placement == "separate"
    assert config.eval.exploitability
    absent = ("co_players", "judge", "curriculum", "guard", "sft", "dpo", "verifier")
    assert all(getattr(config, name) is None for name in absent)


@pytest.mark.parametrize("name", ["co_players", "league"])
def test_a_run_of_0_1_is_no_users_file(name: str) -> None:
    with pytest.raises(ConfigError, match="renamed; write"):
        load_config(RUNS / f"{name}.toml")


def test_players_and_names_with_dots_survive() -> None:
    phase = {"members": {"script:careless~0.3": 1.0, "p@3": 1.0}}
    new = {"members": {"script:noisy~0.3": 1.0, "p@3": 1.0}}
    data = {"company": {"phases": [phase]}, "policies": {"v1.5": {"sees": True}}}
    assert migrate(data) == {
        "co_players": {"phases": [new]},
        "policies": {"v1.5": {"supports_images": True}},
    }


def test_the_example_run_of_0_1_has_only_the_optional_section_that_it_used() -> None:
    config = load_config(ROOT / "examples" / "a_run" / "config.toml", of_run=True)
    assert config.sft is not None
    names = ("league", "co_players", "judge", "curriculum", "guard", "dpo", "verifier")
    assert all(getattr(config, name) is None for name in names)
    assert config.loss.entropy_coef == 0.02


def test_metrics_of_0_1_get_their_new_names() -> None:
    row = {"policies/p/gap": 1.0, "company/phase": 2.0, "step": 3}
    assert migrate_metrics(row) == {"policies/p/mismatch": 1.0, "co_players/phase": 2.0, "step": 3}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("league/score_careless", "league/score_noisy"),
        ("policies/p/anchor_careless~0.3", "policies/p/anchor_noisy~0.3"),
        ("policies/p/anchor_careless_reward", "policies/p/anchor_noisy_reward"),
        ("policies/careless/loss", "policies/careless/loss"),
        ("time/playing earlier company", "time/playing earlier co_players"),
    ],
)
def test_metrics_of_0_1_get_the_new_names_of_players(old: str, new: str) -> None:
    assert migrate_metrics({old: 1.0}) == {new: 1.0}


def test_a_policy_with_the_old_name_of_a_player_keeps_it() -> None:
    scripted = {"kind": "scripted", "player": "careless"}
    data = {"policies": {"careless": scripted}, "roles": {"player_x": "careless"}}
    assert migrate(data) == {
        "policies": {"careless": scripted | {"player": "noisy"}},
        "roles": {"player_x": "careless"},
    }


def test_an_option_of_an_environment_is_renamed_for_it_alone() -> None:
    from pettingllms.config.renames import migrate

    old = {"env": {"id": "sokoban-v1", "levels": "a.txt"}}
    assert migrate(old)["env"] == {"id": "sokoban-v1", "data": "a.txt"}
    other = {"env": {"id": "mine-v1", "levels": 3}}
    assert migrate(other) == other
