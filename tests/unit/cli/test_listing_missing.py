"""`envs` on a machine that lacks what an environment needs."""

import pytest
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.errors import GraderError


def test_an_environment_that_cannot_be_made_is_named_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing() -> None:
        raise GraderError("math-verify is not installed")

    monkeypatch.setattr("pettingllms.envs.toolkit.boxed_answers.check_installed", nothing)
    done = CliRunner().invoke(app, ["envs"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "math-v1 is not available: math-verify is not installed" in done.output
    assert "tic_tac_toe-v1" in done.output
