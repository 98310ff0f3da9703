"""The smoke run of each experiment reaches its floor, and misses it when credit is broken."""

from pathlib import Path

import pytest
from running import HERE, run

from pettingllms.experiments.experiment import load_experiment

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.smoke]
ROOT = HERE.parents[1]
LONG = {"preference_vllm", "propose"}
"""Experiments on a pretrained model, whose smoke run takes too long for CI; and `propose`, whose
floor is an estimate."""
EXPERIMENTS = [
    pytest.param(path.parent.name, marks=[pytest.mark.long] * (path.parent.name in LONG))
    for path in sorted((ROOT / "experiments").glob("*/experiment.toml"))
    if load_experiment(path.parent).quick.floors
]
"""Those whose smoke run has a floor."""
SECONDS = 1500
"""A smoke run takes up to five minutes on a quiet machine, and machines can be busy."""


def smoke_run(name: str, folder: Path, *program: str, code: int) -> str:
    return run(
        folder / "log.txt",
        *(*program, "reproduce", name, "--quick"),
        *("--experiments", str(ROOT / "experiments"), "--out", str(folder / "out")),
        seconds=SECONDS,
        code=code,
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke_run_reaches_its_floor(name: str, tmp_path: Path) -> None:
    smoke_run(name, tmp_path, "-m", "pettingllms", code=0)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke_run_without_credit_goes_red(name: str, tmp_path: Path) -> None:
    said = smoke_run(name, tmp_path, str(HERE / "no_credit.py"), code=1)
    assert "learning is broken" in said
