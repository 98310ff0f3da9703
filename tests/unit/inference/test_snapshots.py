"""Frozen snapshots in the small engine: each answers as it did, and costs an adapter, no model."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.config import InferenceConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import SamplerError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import make_tiny
from pettingllms.types import SampleRequest, ScoreRequest

ResultT = TypeVar("ResultT")
PROMPT, REPLY = np.arange(5, 15, dtype=np.int32), np.arange(20, 26, dtype=np.int32)


def run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    return asyncio.run(work)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"count {n}" for n in range(50)]
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts, hidden_size=64)


def taught(model: Path, policy: Any) -> Learner:
    spec = LearnerSpec(model, {"p": policy}, LearnerConfig(), loss_config("plain"), 64, seed=3)
    return Learner(spec)


def weights_of(learner: Learner, step: int) -> dict[str, bytes]:
    """Its files after one more update."""
    item = Item(PROMPT, REPLY, np.zeros(len(REPLY), np.float32), 1.0)
    learner.train("p", [item], step)
    return learner.files("p")[0]


def bytes_of(engine: TorchEngine) -> int:
    models = [engine._lm, *engine._copies.values()]
    held = {id(p): p.numel() * p.element_size() for lm in models for p in lm.parameters()}
    return sum(held.values())


def score(engine: TorchEngine, policy: str) -> list[float]:
    return run(engine.score(policy, ScoreRequest(PROMPT, REPLY))).tolist()


@pytest.mark.parametrize("kind", ["adapter", "copy"])
def test_snapshots_answer_as_they_did_while_the_policy_moves_on(kind: str, model: Path) -> None:
    lora = LoraPolicy(model=str(model), rank=4, lr=1e-2)
    learner = taught(model, lora if kind == "adapter" else FullPolicy(model=str(model), lr=1e-2))
    engine = TorchEngine(EngineSpec(model, InferenceConfig(engine="torch"), ("p",)))
    run(engine.start())
    publish = engine.publish_adapter if kind == "adapter" else engine.publish_weights
    freeze = engine.publish_adapter if kind == "adapter" else engine.publish_copy
    said = {}
    for step in range(1, 5):
        files = weights_of(learner, step)
        run(publish("p", step, files))
        run(freeze(f"p@{step}", step, files))
        said[f"p@{step}"] = score(engine, "p")
        for name, then in said.items():
            assert score(engine, name) == pytest.approx(then, abs=1e-6)
    assert len({tuple(then) for then in said.values()}) == 4
    assert score(engine, "p") == said["p@4"]
    run(engine.drop("p@2"))
    run(engine.drop("p@2"))  # as after a start anew: it knows of none
    assert score(engine, "p@3") == pytest.approx(said["p@3"], abs=1e-6)
    request = SampleRequest("p@2", "r", PROMPT, 1, 4, 0, "t")
    with pytest.raises(SamplerError, match="does not serve"):
        run(engine.sample(request))


def test_a_league_of_32_snapshots_costs_32_adapters_and_no_model(model: Path) -> None:
    learner = taught(model, LoraPolicy(model=str(model), rank=4, lr=1e-2))
    engine = TorchEngine(EngineSpec(model, InferenceConfig(engine="torch"), ("p",)))
    run(engine.start())
    base = bytes_of(engine)
    files = weights_of(learner, 1)
    run(engine.publish_adapter("p", 1, files))
    adapter = bytes_of(engine) - base
    for number in range(32):
        run(engine.publish_adapter(f"p@{number}", number, weights_of(learner, number + 2)))
    assert bytes_of(engine) == base + 33 * adapter
    assert len({tuple(score(engine, f"p@{number}")) for number in range(32)}) == 32
    on_disk = sum(map(len, files.values()))
    assert adapter < on_disk < 1.2 * adapter + 8192, "weights, their names and a small config"
    for number in range(32):
        run(engine.drop(f"p@{number}"))
    assert bytes_of(engine) == base + adapter
