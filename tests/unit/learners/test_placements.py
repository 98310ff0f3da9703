"""Training moves the weights that were to move, and only those."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

from image_prompts import IMAGE_PROMPTS, asked, gaps, items_of, learner_of

from pettingllms.config import InferenceConfig, parse_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.models import make_tiny, make_tiny_vision
from pettingllms.training.export import export

PARTS = {
    "language": ".language_model.",
    "vision": ".visual.blocks.",
    "projector": ".visual.merger.",
}
PLACEMENTS = [
    ["language"],
    ["vision"],
    ["projector"],
    ["projector", "vision"],
    ["language", "projector", "vision"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_vision(tmp_path_factory.mktemp("models") / "eyes", hidden_size=64)


@pytest.fixture(scope="module")
def items(folder: Path) -> list[Item]:
    renderer = VisionRenderer(folder)
    return [
        item
        for at, messages in enumerate(IMAGE_PROMPTS.values())
        for item in items_of(
            asked(renderer, messages), [_said(renderer, text, at) for text in ("B2", "A1 or C3")]
        )
    ]


def _said(renderer: VisionRenderer, text: str, at: int) -> Any:
    from pettingllms.types import Sample

    ids = renderer.encode(text)
    return Sample(ids, np.full(len(ids), -1.0 - at, np.float32), 0, "stop")


def weights(learner: Learner) -> dict[str, Any]:
    return {n: p.detach().clone() for n, p in learner._model.lm.named_parameters()}


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def train(learner: Learner, items: list[Item]) -> None:
    for step in (1, 2):  # the half of an adapter that begins with zeros hides the other at first
        measured = learner.train("p", items, step)
        assert measured["grad_norm"] > 0


@pytest.mark.parametrize("parts", PLACEMENTS, ids="-".join)
def test_an_adapter_moves_where_it_was_placed_and_nowhere_else(
    parts: Any, folder: Path, items: list[Item]
) -> None:
    policy = LoraPolicy(model=str(folder), rank=4, lr=1e-2, parts=parts)
    learner = learner_of(folder, policy)
    before = weights(learner)
    train(learner, items)
    moved = changed(before, weights(learner))
    assert moved == set(learner._adapters.parameters("p"))
    layers = {
        part: {n for n in before if where in n and n.endswith(".base_layer.weight")}
        for part, where in PARTS.items()
    }
    for part, where in PARTS.items():
        found = {name for name in moved if where in name}
        if part not in parts:
            assert not found, part
            continue
        # An A and a B for every linear layer of the part.
        assert len(found) == 2 * len(layers[part]), part
        assert len(layers[part]) == {"language": 14, "vision": 10, "projector": 2}[part]


def test_language_is_where_an_adapter_is_by_default(folder: Path) -> None:
    learner = learner_of(folder, LoraPolicy(model=str(folder), rank=4))
    assert all(PARTS["language"] in name for name in learner._adapters.parameters("p"))


def test_training_the_whole_model_moves_every_part(folder: Path, items: list[Item]) -> None:
    learner = learner_of(folder, FullPolicy(model=str(folder), lr=1e-3))
    before = weights(learner)
    train(learner, items)
    assert changed(before, weights(learner)) == set(before)


@pytest.mark.parametrize("parts", [None, *PLACEMENTS], ids=lambda p: "-".join(p) if p else "full")
def test_the_sampler_uses_the_trained_weights(parts: Any, folder: Path, items: list[Item]) -> None:
    policy: Any = FullPolicy(model=str(folder), lr=1e-3)
    if parts:
        policy = LoraPolicy(model=str(folder), rank=4, lr=1e-2, parts=parts)
    learner = learner_of(folder, policy)
    config = InferenceConfig(engine="torch", max_model_len=512)
    engine = TorchEngine(EngineSpec(folder, config, ("p",)))
    request = asked(VisionRenderer(folder), IMAGE_PROMPTS["several"])

    async def play() -> tuple[list[Item], list[Item]]:
        await engine.start()
        old = items_of(request, await engine.sample(request))
        train(learner, items)
        publish = engine.publish_adapter if parts else engine.publish_weights
        await publish("p", 1, learner.files("p")[0])
        return old, items_of(request, await engine.sample(request))

    old, new = asyncio.run(play())
    assert max(gaps(learner, new)) < 1e-5
    assert min(gaps(learner, old)) > 1e-3


def test_a_text_only_model_has_no_vision_encoder_to_adapt(tmp_path: Path) -> None:
    reader = make_tiny(tmp_path / "reader", texts=["one two three"])
    with pytest.raises(LearnerError, match="vision of .* text-only; leave `parts` out"):
        learner_of(reader, LoraPolicy(model="reader", parts=["vision"]))


def test_a_trained_model_is_exported_with_its_vision_encoder(
    folder: Path, items: list[Item], tmp_path: Path
) -> None:
    policy = FullPolicy(model=str(folder), lr=1e-3)
    learner = learner_of(folder, policy)
    train(learner, items)
    config = parse_config(
        {
            "env": {"id": "visual_relay-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": policy.model_dump()},
        }
    )
    export(config, {"p": learner.files("p")[0]}, "p", tmp_path / "out")
    again = learner_of(tmp_path / "out", policy)
    assert not changed(weights(learner), weights(again))
    for one, other in zip(*(some.logprobs("p", items) for some in (learner, again)), strict=True):
        np.testing.assert_array_equal(one, other)
