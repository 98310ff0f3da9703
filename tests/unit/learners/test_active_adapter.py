"""Switching adapters: compiled layers stay valid, and nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from torch._dynamo.testing import CompileCounter

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import LoraPolicy
from pettingllms.learners.active_adapter import SLOT
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.policy_model import decoder_layers
from pettingllms.models import make_tiny

NAMES = [f"policy{at}" for at in range(6)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", "llama", texts=["a b"], hidden_size=64)


def learner(model: Path, **policies: dict[str, Any]) -> Learner:
    options = policies or {name: {} for name in NAMES}
    lora = {n: LoraPolicy(model="m", **{"rank": 4, "lr": 1e-2, **o}) for n, o in options.items()}
    return Learner(LearnerSpec(model, lora, LearnerConfig(), loss_config(), 16, seed=3))


def items(num_tokens: int = 6) -> list[Item]:
    rng = np.random.default_rng(num_tokens)
    prompt = rng.integers(5, 60, 8).astype(np.int32)
    return [
        Item(prompt, rng.integers(5, 60, num_tokens).astype(np.int32), logp, float(rng.normal()))
        for logp in np.full((4, num_tokens), -4, np.float32)
    ]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # by Dynamo
def test_compiled_layers_serve_every_adapter(model: Path) -> None:
    made, plain = learner(model), learner(model)
    counter, num_graphs = CompileCounter(), []
    torch._dynamo.reset()
    for layer in decoder_layers(made._adapters.model.get_base_model()):
        layer.compile(backend=counter, dynamic=True)
    for at, name in enumerate(NAMES):
        made.train(name, items(5 + at), 1)
        plain.train(name, items(5 + at), 1)
        assert made.files(name)[1] == plain.files(name)[1]
        num_graphs.append(counter.frame_count)
    assert num_graphs == num_graphs[:1] * len(NAMES), "an adapter had to be compiled separately"
    torch._dynamo.reset()


def test_a_second_name_changes_no_names(model: Path) -> None:
    made = learner(model)
    before = [name for name, _ in made._model.named_parameters()]
    made.train(NAMES[3], items(), 1)
    assert [name for name, _ in made._model.named_parameters()] == before
    assert not any(SLOT in name for name in before)
    counts = {len(made._parameters(name)) for name in NAMES}
    assert len(counts) == 1
    assert counts.pop() * len(NAMES) == sum(".lora_" in name for name in before)


def test_a_layer_without_the_adapter_computes_as_the_base_does(model: Path) -> None:
    made = learner(model, everywhere={}, query={"target_modules": ["q_proj"], "rank": 8})
    alone = learner(model, query={"target_modules": ["q_proj"], "rank": 8})
    for step in (1, 2):
        made.train("everywhere", items(), step)
        made.train("query", items(), step)
        alone.train("query", items(), step)
    found, expected = made.logprobs("query", items()), alone.logprobs("query", items())
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
    base, bare = made.base_logprobs(items()), learner(model).base_logprobs(items())
    np.testing.assert_array_equal(np.concatenate(base), np.concatenate(bare))
    after = made.logprobs("query", items())
    np.testing.assert_array_equal(np.concatenate(after), np.concatenate(expected))
    assert not np.array_equal(np.concatenate(after), np.concatenate(base))
