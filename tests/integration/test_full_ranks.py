"""A full model on two ranks in the whole program: published and saved through files, resumed."""

import json
import tempfile
from pathlib import Path

import pytest
from running import cli, config_of, metrics_of, write_config

from pettingllms.models import make_tiny

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")

WRITTEN = "pettingllms-weights-*"


def test_a_sharded_run_resumes_from_files_that_ranks_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_tiny(tmp_path / "tiny", texts=["one two three 1 2 3"] * 4, hidden_size=64)
    config = config_of(
        {"p": {"kind": "full", "model": str(model), "lr": 1e-3}},
        {"role0": "p"},
        algo={"type": "mappo"},
        critic={"kind": "model"},
        learner={"num_ranks": 2},
        loss={"entropy_coef": 0.01},
        inference={"engine": "torch"},
        cluster={"device": "cpu"},
        train={"num_steps": 2, "save_every": 1, "keep_checkpoints": 100},
    )
    monkeypatch.chdir(tmp_path)
    before = set(Path(tempfile.gettempdir()).glob(WRITTEN))
    whole, cut = Path("whole"), Path("cut")  # relative, while Ray's processes have another folder
    cli(tmp_path / "whole.txt", "train", write_config(Path("c.toml"), config), "--out", whole)
    config["train"]["num_steps"] = 1
    cli(tmp_path / "cut.txt", "train", write_config(Path("d.toml"), config), "--out", cut)
    settings = cut / "config.toml"
    settings.write_text(settings.read_text().replace("num_steps = 1", "num_steps = 2"))
    cli(tmp_path / "resumed.txt", "resume", cut)
    for line in (*metrics_of(whole), *metrics_of(cut)):
        assert line["policies/p/canary_difference"] < 1e-4
        assert line["policies/p/grad_norm"] > 0
    one, other = (
        json.loads((run / "checkpoints/step-000002/manifest.json").read_text())["files"]
        for run in (whole, cut)
    )
    assert len(one) == 8  # of each rank: weights and optimizer state of policy and critic
    assert one == other
    assert set(Path(tempfile.gettempdir()).glob(WRITTEN)) <= before
