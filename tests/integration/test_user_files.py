"""A loss and an inference engine from a user's files train two steps under Ray."""

from pathlib import Path

import pytest
from running import cli, config_of, metrics_of, write_config

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")

LOSS = '''
from pettingllms import Loss, LossConfig


class Config(LossConfig):
    scale: float = 1.0
    """Factor of the objective."""


class ScaledLoss(Loss):
    Config = Config
    needs = frozenset({"entropy", "reference_logprobs"})

    def objective(self, inputs):
        assert inputs.entropy_BT is not None and inputs.ref_logp_BT is not None
        objective_BT = self.config.scale * inputs.token_advantages() * inputs.logp_BT
        return objective_BT, {"certainty": inputs.logp_BT.exp()}
'''
ENGINE = '''
from dataclasses import replace

from pettingllms.inference.engines.torch import TorchEngine


class QueuedEngine(TorchEngine):
    """Answers requests one by one."""

    capabilities = replace(TorchEngine.capabilities, lockstep=False)
'''


def test_a_loss_and_an_engine_from_user_files_train(tmp_path: Path) -> None:
    from pettingllms.models import make_tiny

    texts = [f"You are role{n % 2}. Count on from {n}: role0 says {n}" for n in range(200)]
    model = str(make_tiny(tmp_path / "tiny", texts=texts, hidden_size=64, vocab_size=320))
    (tmp_path / "my_loss.py").write_text(LOSS)
    (tmp_path / "my_engine.py").write_text(ENGINE)
    config = config_of(
        {"p": {"kind": "lora", "model": model, "rank": 4, "lr": 1e-3}},
        {"role0": "p", "role1": "p"},
        loss={"type": "my_loss.py:ScaledLoss", "scale": 2.0},
        inference={"engine": "my_engine.py:QueuedEngine"},
        cluster={"device": "cpu"},
        train={"num_steps": 2},
    )
    write_config(tmp_path / "run.toml", config)
    out = tmp_path / "out"
    cli(tmp_path / "log.txt", "train", tmp_path / "run.toml", "--out", out, seconds=300)
    lines = metrics_of(out)
    assert len(lines) == 2
    assert all(0 < line["policies/p/certainty"] < 1 for line in lines)
