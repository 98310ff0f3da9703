"""Which layers get LoRA adapters, and when their dropout applies."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import make_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=["a b c"], hidden_size=64)


def learner(model: Path, seed: int = 5, num_minibatches: int = 1, **policy: object) -> Learner:
    config = LearnerConfig(num_minibatches=num_minibatches)
    policies = {"a": LoraPolicy(model="m", rank=4, lr=1e-2, **policy)}
    return Learner(LearnerSpec(model, policies, config, loss_config(), 16, seed))


def batch(made: Learner) -> list[Item]:
    """Replies with the log-probs that the learner gives them."""
    rng = np.random.default_rng(0)
    items = []
    for _ in range(4):
        prompt, reply = (rng.integers(5, 60, n).astype(np.int32) for n in (4, 6))
        items.append(Item(prompt, reply, np.zeros(len(reply), np.float32), float(rng.normal())))
    found = made.logprobs("a", items)
    return [replace(item, logprobs=logp) for item, logp in zip(items, found, strict=True)]


def layers(made: Learner) -> set[str]:
    return {name.split(".lora_")[0].rpartition(".")[2] for name in made._parameters("a")}


def test_adapters_are_added_to_the_named_layers_only(model: Path) -> None:
    made = learner(model, target_modules=["q_proj", "self_attn.v_proj"])
    assert layers(made) == {"q_proj", "v_proj"}
    assert layers(learner(model)) > {"q_proj", "v_proj", "down_proj"}
    saved = json.loads(made.files("a")[0]["adapter_config.json"])
    assert saved["target_modules"] == ["q_proj", "self_attn.v_proj"]
    other = learner(model, seed=9, target_modules=["q_proj", "self_attn.v_proj"])
    other.load("a", made.files("a")[0])
    assert other.files("a")[1] == made.files("a")[1]


@pytest.mark.parametrize("name", ["query", "_proj", "lm_head", "embed_tokens", "mlp"])
def test_layers_that_the_model_does_not_have_are_rejected(model: Path, name: str) -> None:
    with pytest.raises(LearnerError, match=f"no layer '{name}'; choose from down_proj, gate_proj"):
        learner(model, target_modules=["q_proj", name])


def test_dropout_applies_to_gradients_alone(model: Path) -> None:
    """Log-probs before the update are those without dropout, so the mismatch with them is 0."""
    made, plain = learner(model, dropout=0.5), learner(model)
    for one in (made, plain):
        one.train("a", batch(one), 1)  # lora_B begins at 0, where dropout changes nothing
    files = made.files("a")[0]
    resumed = learner(model, dropout=0.5)
    for one in (plain, resumed):
        one.load("a", files)
    items = batch(resumed)
    for own, *others in zip(
        items, plain.logprobs("a", items), made.logprobs("a", items), strict=True
    ):
        for other in others:
            np.testing.assert_array_equal(own.logprobs, other)
    found, wanted = made.train("a", items, 2, keep_logprobs=True), plain.train("a", items, 2)
    assert found["max_mismatch"] == pytest.approx(0, abs=1e-5)
    assert found["grad_norm"] != pytest.approx(wanted["grad_norm"], rel=1e-3)
    for item, kept in zip(items, made.take_logprobs(), strict=True):
        np.testing.assert_allclose(kept, item.logprobs, atol=1e-5)
    assert found["kl"] > 1e-6, "the ratio has the noise of dropout"
    assert wanted["kl"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("num_minibatches", [1, 2])
def test_dropout_follows_the_seed(model: Path, num_minibatches: int) -> None:
    def trained(seed: int, dropout: float) -> str:
        made = learner(model, num_minibatches=num_minibatches, dropout=dropout)
        made._spec = replace(made._spec, seed=seed)
        for step in (1, 2):
            torch.rand(seed + step)  # what else was drawn before does not matter
            before = torch.get_rng_state()
            made.train("a", batch(made), step)
            assert torch.equal(torch.get_rng_state(), before)
        return made.files("a")[1]

    assert trained(1, 0.3) == trained(1, 0.3)
    assert trained(1, 0.3) != trained(1, 0.0)
