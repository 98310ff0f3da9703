import json

import pytest
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.errors import SandboxError
from pettingllms.sandbox import open_sandbox


def test_the_sandbox_is_measured_cold_warm_and_with_one_that_hangs() -> None:
    try:
        tier = open_sandbox().tier.name
    except SandboxError as error:
        pytest.skip(str(error))
    done = CliRunner().invoke(app, ["bench", "sandbox", "--programs", "4", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["tier"] == tier
    assert all(result[f"{kind}_per_second"] > 0 for kind in ("cold", "warm", "hanging"))
    assert result["warm_ms"] > 0
    assert result["cpu_ms"] > 0
