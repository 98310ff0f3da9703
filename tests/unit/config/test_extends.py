"""`extends`: one configuration file builds on another."""

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pettingllms as pl
from pettingllms.cli.main import app
from pettingllms.config import load_config, read_config, to_toml
from pettingllms.errors import ConfigError
from pettingllms.runs import RunFolder
from pettingllms.runs.trust import TRUST, load_run_config

BASE = """
[env]
id = "tic_tac_toe-v1"
[algo]
type = "grpo"
[policies.shared]
kind = "lora"
model = "base"
rank = 4
[rollout]
num_samples = 4
num_tasks = 2
[log]
trackers = []
"""


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    (problem,) = caught.value.problems
    return problem


def test_tables_merge_and_values_and_lists_replace(tmp_path: Path) -> None:
    write(
        tmp_path,
        base="list = [1, 2]\nkept = 1\n[a]\nx = 1\n[a.b]\ny = 2\nz = 3\n",
        child='extends = "base.toml"\nlist = [3]\n[a.b]\nz = 4\n',
    )
    expected = {"list": [3], "kept": 1, "a": {"x": 1, "b": {"y": 2, "z": 4}}}
    assert read_config(tmp_path / "child.toml") == expected


def test_a_chain_ends_with_the_first_file_and_overrides_come_last(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    write(tmp_path, base=BASE, middle='extends = "base.toml"\n[rollout]\nnum_samples = 8\n')
    write(tmp_path / "deeper", leaf='extends = "../middle.toml"\n[policies.shared]\nrank = 2\n')
    config = load_config(tmp_path / "deeper" / "leaf.toml", ["rollout.num_tasks=5"])
    assert (config.rollout.num_samples, config.rollout.num_tasks) == (8, 5)
    assert (config.policies["shared"].rank, config.policies["shared"].model) == (2, "base")
    assert pl.make_config(str(tmp_path / "deeper" / "leaf.toml")).rollout.num_samples == 8


@pytest.mark.parametrize("name", ["kuhn_poker_self_play", "kuhn_poker_self_play.toml"])
def test_a_shipped_config_is_extended_by_its_name_even_by_a_file_of_the_same_name(
    name: str, tmp_path: Path
) -> None:
    write(tmp_path, kuhn_poker_self_play=f'extends = "{name}"\nseed = 7\n')
    config = load_config(tmp_path / "kuhn_poker_self_play.toml")
    assert (config.seed, config.env.id) == (7, "kuhn_poker-v1")


def test_a_cycle_is_rejected_with_its_files(tmp_path: Path) -> None:
    write(tmp_path, a='extends = "b.toml"\n', b='extends = "a.toml"\n')
    assert "a.toml -> b.toml -> a.toml is a cycle" in refused(tmp_path / "a.toml")
    write(tmp_path, own='extends = "own.toml"\n')
    assert "own.toml -> own.toml is a cycle" in refused(tmp_path / "own.toml")


@pytest.mark.parametrize("value", ['"nothing.toml"', '"../../etc/nothing"', '"/nothing.toml"'])
def test_a_missing_file_is_rejected_with_the_place_looked_at(value: str, tmp_path: Path) -> None:
    write(tmp_path, a=f"extends = {value}\n")
    problem = refused(tmp_path / "a.toml")
    assert "there is no file" in problem
    assert "no shipped config" in problem


@pytest.mark.parametrize("value", ['["a.toml"]', "1", '""', "{ a = 1 }"])
def test_extends_names_one_file(value: str, tmp_path: Path) -> None:
    write(tmp_path, a=f"extends = {value}\n")
    assert "expected a TOML file or the name of a shipped config" in refused(tmp_path / "a.toml")


def test_it_is_no_key_of_overrides_or_tables(tmp_path: Path) -> None:
    write(tmp_path, base=BASE)
    with pytest.raises(ConfigError, match="works only at the top of a TOML file"):
        load_config(tmp_path / "base.toml", ["extends=base.toml"])
    with pytest.raises(ConfigError, match="works only at the top of a TOML file"):
        pl.make_config({**tomllib.loads(BASE), "extends": "base.toml"})


def test_paths_to_user_classes_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "mine.py").write_text(
        "from pettingllms.algos.grpo import Grpo\nclass Mine(Grpo): pass\n"
    )
    write(tmp_path, base=BASE.replace('"grpo"', '"mine.py:Mine"'))
    write(tmp_path / "deeper", leaf='extends = "../base.toml"\n')
    assert load_config(tmp_path / "deeper" / "leaf.toml").algo.type == f"{tmp_path}/mine.py:Mine"


def test_show_config_prints_and_run_folders_store_the_merged_config(tmp_path: Path) -> None:
    write(tmp_path, base=BASE, leaf='extends = "base.toml"\n[rollout]\nnum_samples = 8\n')
    shown = CliRunner().invoke(app, ["show-config", str(tmp_path / "leaf.toml")])
    assert tomllib.loads(shown.output)["rollout"]["num_samples"] == 8
    config = load_config(tmp_path / "leaf.toml")
    folder = RunFolder(tmp_path / "run")
    folder.create(config)
    (tmp_path / "base.toml").unlink()  # a run does not depend on the file
    assert "extends" not in tomllib.loads((folder.path / "config.toml").read_text())
    assert folder.config() == config
    assert "extends" not in to_toml(config)


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("bare", [False, True])
def test_a_received_run_reads_no_other_file(
    bare: bool, trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its user trusts the code that it names or not."""
    monkeypatch.setenv(TRUST, "1" if trusted else "0")
    run = tmp_path / "received"
    run.mkdir()
    if not bare:
        (run / "metrics.jsonl").write_text('{"step": 1}\n')
    write(tmp_path, other="token = hidden")
    write(run, config='extends = "../other.toml"\n')
    with pytest.raises(ConfigError) as caught:
        load_run_config(run / "config.toml")
    assert "hidden" not in str(caught.value)
    assert "other.toml" not in str(caught.value)
    for command in ("show-config", "check"):
        said = CliRunner().invoke(app, [command, str(run / "config.toml")])
        assert "other.toml" not in f"{said.exception}{said.output}" or (bare and trusted), (
            said.output
        )
