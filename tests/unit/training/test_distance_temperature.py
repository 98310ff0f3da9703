"""Distance from perfect play is that of the policy as it is sampled, at its temperature."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from local import in_this_process

from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import make_env
from pettingllms.exploitability import InfoState, nash_conv
from pettingllms.inference.chat import ChatRenderer
from pettingllms.models import make_tiny
from pettingllms.models.tiny import texts_of
from pettingllms.training.evaluate import evaluate

ENV = {"id": "kuhn_poker-v1", "terse": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    return make_tiny(folder, texts=texts_of([make_env(**ENV)], 20), hidden_size=64, vocab_size=320)


def config(model: Path, temperature: float, eval_temperature: float | None = None) -> RunConfig:
    given = {} if eval_temperature is None else {"temperature": eval_temperature}
    return parse_config(
        {
            "env": ENV,
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "frozen", "model": str(model), "temperature": temperature}},
            "rollout": {"max_reply_tokens": 4},
            "eval": {"num_tasks": 1, "exploitability": True, **given},
            "inference": {"engine": "torch"},
            "cluster": {"device": "cpu"},
        }
    )


def measured(config: RunConfig) -> dict[str, float]:
    with in_this_process():
        return evaluate(config, {}, lambda text: None).exploitability["p"]


class Plain:
    """The policy as Transformers alone computes it at a temperature, over legal replies."""

    def __init__(self, model: Path, temperature: float) -> None:
        from transformers import AutoModelForCausalLM

        self._lm = AutoModelForCausalLM.from_pretrained(model)
        self._renderer = ChatRenderer(model)
        self._temperature = temperature

    def __call__(self, infos: Sequence[InfoState]) -> list[list[float]]:
        found = [np.array([self._logprob(info, reply) for reply in info.replies]) for info in infos]
        weights = [np.exp(some - some.max()) for some in found]
        return [(some / some.sum()).tolist() for some in weights]

    def _logprob(self, info: InfoState, reply: str) -> float:
        prompt, ids = self._renderer.render(info.messages), self._renderer.encode(reply)
        whole = torch.tensor(np.concatenate([prompt, ids])).long()
        with torch.no_grad():
            logits = self._lm(whole[None]).logits[0].double() / self._temperature
        logp = torch.log_softmax(logits, -1)
        return float(logp[len(prompt) - 1 : -1].gather(1, whole[len(prompt) :, None]).sum())


def test_distance_is_that_of_the_policys_temperature(model: Path) -> None:
    found: dict[float, Any] = {}
    for temperature in (1.0, 0.7, 0.5, 0.2):
        expected = nash_conv(make_env(**ENV), Plain(model, temperature))
        found[temperature] = measured(config(model, temperature))["nash_conv"]
        assert found[temperature] == pytest.approx(expected, abs=1e-4)
    assert abs(found[0.2] - found[1.0]) > 0.2


def test_distance_is_that_of_the_evaluations_temperature(model: Path) -> None:
    """What plays in an evaluation is what is measured: `eval.temperature` comes first."""
    expected = nash_conv(make_env(**ENV), Plain(model, 0.3))
    found = measured(config(model, temperature=1.0, eval_temperature=0.3))
    assert found["nash_conv"] == pytest.approx(expected, abs=1e-4)


def test_greedy_distance_is_the_limit_of_low_temperatures(model: Path) -> None:
    """At temperature 0 one legal reply is certain: the one that remains as temperatures fall."""
    limit = nash_conv(make_env(**ENV), Plain(model, 0.005))
    found = measured(config(model, temperature=0.0))
    assert found["nash_conv"] == pytest.approx(limit, abs=1e-3)
    assert 0 <= found["legal_share"] <= 1
