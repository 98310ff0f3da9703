"""Every recipe loads, is short and listed, and its memory plan fits the hardware that it names."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from qwen3_configs import QWEN3, qwen3
from rich.console import Console
from typer.testing import CliRunner

from pettingllms.cli import check as cli_check
from pettingllms.cli import check_plan as cli_check_plan
from pettingllms.cli import recipes as cli_recipes
from pettingllms.cli.main import app
from pettingllms.config import RunConfig, load_config, read_config
from pettingllms.config.recipes import NEVER_RUN, read_recipes
from pettingllms.datasets.sources import parse_source
from pettingllms.policies import check_lora_dtype, check_placement, plan_models
from pettingllms.preflight.hardware import find_hardware
from pettingllms.preflight.model_size import size_of
from pettingllms.preflight.sizing import plan_memory

FOLDER = Path(__file__).parents[2] / "configs" / "recipes"
RECIPES = read_recipes(FOLDER)
SIZES = {
    f"Qwen/Qwen3-{name}{suffix}": size_of(qwen3(name)) for name in QWEN3 for suffix in ("", "-Base")
}
TASKS = ("sudoku", "sokoban", "plan_path", "code", "math")


def loaded(name: str) -> RunConfig:
    """A recipe with bundled problems in place of files and of the hub."""
    path = FOLDER / f"{name}.toml"
    has_data = "data" in read_config(path)["env"]
    return load_config(path, ["env.data=", "env.test_data="] if has_data else [])


def test_files_and_index_have_the_same_recipes() -> None:
    assert sorted(RECIPES) == sorted(file.stem for file in FOLDER.glob("*.toml"))
    wanted = {
        f"{t}_{x}_{m}" for t in TASKS for x in ("l0", "l1", "l2", "l3") for m in ("1.7b", "8b")
    }
    wanted |= {f"{task}_l2_1.7b_24gb" for task in TASKS}
    wanted |= {"debate_gsm8k_l2_1.7b", "debate_anli_l2_1.7b", "self_play_kuhn_l1_4b"}
    assert wanted <= RECIPES.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_short_and_is_what_the_index_says(name: str) -> None:
    text = (FOLDER / f"{name}.toml").read_text()
    assert len(text.splitlines()) < 25
    assert text.startswith("# ")
    config, recipe = loaded(name), RECIPES[name]
    played = {config.policies[policy].model for policy in config.roles.values()}
    assert played == {f"Qwen/{recipe.model}"}
    kinds = {config.policies[policy].kind for policy in config.roles.values()}
    num_policies = len(set(config.roles.values()))
    found = {
        (True, 1, "full"): "L0",
        (False, 1, "full"): "L1",
        (False, 2, "lora"): "L2",
        (False, 2, "full"): "L3",
    }[len(config.roles) == 1, num_policies, *kinds]
    assert found == recipe.level
    assert recipe.status == NEVER_RUN
    assert bool(recipe.reference) == bool(recipe.source)


@pytest.mark.parametrize("name", RECIPES)
def test_its_memory_plan_fits_the_hardware_that_it_names(name: str) -> None:
    config, recipe = loaded(name), RECIPES[name]
    groups = plan_models(config)
    check_placement(config, groups)
    check_lora_dtype(config, groups)
    plan = plan_memory(config, find_hardware(recipe.gpu, 1, recipe.num_gpus), SIZES)
    assert plan.fits, [finding.what for finding in plan.findings() if finding.level == "problem"]
    assert plan.num_gpus == recipe.num_gpus


def test_a_plan_that_does_not_fit_is_found() -> None:
    config = loaded("math_l3_8b")
    assert not plan_memory(config, find_hardware("a100-40"), SIZES).fits
    config = loaded("math_l2_1.7b_24gb")
    assert not plan_memory(config, find_hardware("t4-16", 1, 1), SIZES).fits


@pytest.mark.parametrize("name", RECIPES)
def test_data_is_fetched_by_name(name: str) -> None:
    env: dict[str, Any] = read_config(FOLDER / f"{name}.toml")["env"]
    for key in {"data", "test_data"} & env.keys():
        source = parse_source(env[key])
        assert source.kind in ("published", "hub")
        if source.published is not None:
            assert env["id"] in source.published.environments


def test_the_command_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_recipes, "console", Console(width=80))
    listed = CliRunner().invoke(app, ["recipes"]).output
    assert all(f" {name} " in listed for name in RECIPES), "names are whole in 80 columns"
    assert "Hours are estimates." in listed
    num_run = sum(one.status != NEVER_RUN for one in read_recipes().values())
    assert f"({num_run} of {len(RECIPES)} were ever run on GPUs)" in listed
    data = json.loads(CliRunner().invoke(app, ["recipes", "l3_8b", "--json"]).output)
    assert set(data) == {f"{task}_l3_8b" for task in TASKS}
    assert data["math_l3_8b"]["hours_are"] == "estimated"


def test_a_recipe_is_found_by_its_name() -> None:
    shown = CliRunner().invoke(app, ["show-config", "recipes/sudoku_l2_8b"])
    assert shown.output.count('model = "Qwen/Qwen3-8B"') == 2
    assert shown.output.count("enable_thinking = false") == 2


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without data and models."""
    for name in ("PETTINGLLMS_DATASETS", "PETTINGLLMS_MODELS", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(cli_check, "console", Console(width=400))
    monkeypatch.setattr(cli_check_plan, "console", Console(width=400))


NOTE = (
    "not on this machine: the data hf:POLARIS-Project/Polaris-Dataset-53K and aime24; before "
    "training, run `pettingllms data get hf:POLARIS-Project/Polaris-Dataset-53K` and `pettingllms "
    "data get aime24`"
)


@pytest.mark.usefixtures("nothing_here")
def test_a_recipe_is_shown_and_planned_before_anything_is_fetched() -> None:
    shown = CliRunner().invoke(app, ["show-config", "recipes/math_l1_8b"])
    assert shown.exit_code == 0
    assert shown.output.splitlines()[0] == f"# {NOTE}"
    assert tomllib.loads(shown.output)["env"]["data"] == "hf:POLARIS-Project/Polaris-Dataset-53K"
    planned = CliRunner().invoke(app, ["check", "recipes/math_l1_8b", "--gpu", "h100-80", "--json"])
    assert planned.exit_code == 0
    notes = [one for one in json.loads(planned.output)["findings"] if one["level"] == "note"]
    (data, model) = [one for one in notes if one["what"].startswith("not on this machine")]
    assert f"{data['what']}; {data['advice']}" == NOTE
    assert "Qwen/Qwen3-8B; the plan has its published size" in model["what"]
    assert model["advice"] == "before training, run `pettingllms models get Qwen/Qwen3-8B`"


@pytest.mark.usefixtures("nothing_here")
def test_to_run_a_recipe_its_data_must_be_here() -> None:
    for command in (["check"], ["train"]):
        said = CliRunner().invoke(app, [*command, "recipes/math_l1_8b"])
        assert said.exit_code == 1
        assert "run `pettingllms data get hf:POLARIS-Project" in str(said.exception or said.output)


@pytest.mark.usefixtures("nothing_here")
def test_wrong_data_is_an_error_of_plans_too(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}")
    for source in (f"math:{tmp_path}/bad.jsonl", "no_such_set", "math:none.jsonl"):
        said = CliRunner().invoke(app, ["show-config", "recipes/math_l1_8b", f"env.data={source}"])
        assert said.exit_code == 1


@pytest.mark.usefixtures("nothing_here")
def test_models_that_no_table_has_must_be_here() -> None:
    words = ["check", "recipes/sudoku_l1_8b", "--gpu", "h100-80", "policies.shared.model=o/unknown"]
    assert CliRunner().invoke(app, words).exit_code == 1
