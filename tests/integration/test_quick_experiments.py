"""The quick forms of experiments notice when learning is broken. That they pass is a step of CI."""

from pathlib import Path

import pytest
from running import HERE, run

from pettingllms.experiments.spec import load_experiment

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ROOT = HERE.parents[1]
EXPERIMENTS = sorted(
    path.parent.name
    for path in (ROOT / "experiments").glob("*/experiment.toml")
    if load_experiment(path.parent).quick.floors
)
"""Those whose quick form has a floor: a model of a hundred million parameters learns too slowly."""


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_without_credit_it_goes_red(name: str, tmp_path: Path) -> None:
    said = run(
        tmp_path / "log.txt",
        *(str(HERE / "no_credit.py"), "reproduce", name, "--quick"),
        *("--experiments", str(ROOT / "experiments"), "--out", str(tmp_path / "out")),
        code=1,
    )
    assert "learning is broken" in said
