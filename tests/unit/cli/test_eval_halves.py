"""`eval` has two halves; an option of the one that was not asked for is refused, never ignored."""

from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pettingllms.cli.evaluate_commands import SUITES
from pettingllms.cli.main import app

SUITE_OPTIONS = [
    ["--player", "random"],
    ["--policy", "p"],
    ["--tasks", "3"],
    ["--samples", "2"],
    ["--bench", "AIME24"],
    ["--option", "solo=true"],
    ["--compare", "results.json"],
    ["--seed", "0"],
    ["--temperature", "0.5"],
    ["--seconds", "600"],
    ["--concurrent", "64"],
    ["--key", "KEY"],
    ["--skip-missing"],
]
"""Some with the value that they would have anyway: they were asked for all the same."""


def said(*words: str) -> str:
    result = CliRunner().invoke(app, ["eval", *words], env={"COLUMNS": "500"})
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("option", SUITE_OPTIONS, ids=lambda option: option[0])
def test_options_of_suites_need_a_suite(option: list[str], tmp_path: Path) -> None:
    text = said(str(tmp_path), *option)
    assert f"Invalid value for '{option[0]}'" in text
    assert "add --suite NAME, or leave it out" in text


@pytest.mark.parametrize("name", ["tasks", "samples", "temperature"])
def test_what_a_configuration_says_for_them_is_named(name: str, tmp_path: Path) -> None:
    key = {"temperature": "eval.temperature"}.get(name, f"eval.num_{name}")
    assert f"give {key}=1 for a run's own test tasks" in said(str(tmp_path), f"--{name}", "1")


def test_distance_is_not_measured_in_suites() -> None:
    text = said("--suite", "games", "--player", "random", "--exploitability")
    assert "Invalid value for '--exploitability'" in text
    assert "leave out --suite or --exploitability" in text


def test_every_option_of_the_panel_is_tried_here() -> None:
    params = get_command(app).commands["eval"].params
    panel = {param.opts[0] for param in params if param.rich_help_panel == SUITES}
    assert panel - {"--suite"} == {option[0] for option in SUITE_OPTIONS}
