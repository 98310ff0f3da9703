"""Two ranks that read token trees reduce the gradients that one rank gets from padded rows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("PIL")

import torch.multiprocessing as mp
from ranks import rank_of
from test_vlm_learner import BLUE, RED, SMALL, item
from tree_cases import (
    CASES,
    gradients,
    learner_of,
    pairs,
    read_padded,
    relative_difference,
    with_credit,
)

from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.learner import Learner
from pettingllms.models import make_tiny, make_tiny_vision
from pettingllms.types import user

KINDS = ("lora", "full")
LOSSES = ("clip", "gspo", "plain", "dpo")
MAX_TOKENS = 50
"""Cuts every batch into several passes per rank."""
Found = dict[str, dict[str, torch.Tensor]]


def text_batches(loss: str, _model: Path) -> dict[str, list[Any]]:
    return {n: pairs(make()) if loss == "dpo" else make() for n, make in CASES.items()}


def mixed_batch(_loss: str, _model: Path) -> dict[str, list[Any]]:
    return {"mixed": CASES["mixed"]()}


def image_batches(loss: str, model: Path) -> dict[str, list[Any]]:
    """Images on both ranks with text between them, and an image on one rank only."""
    renderer, rng = VisionRenderer(model), np.random.default_rng(4)

    def reply(prompt: Any, text: str) -> Any:
        made = item(renderer, *prompt, reply=text)
        return replace(with_credit(made.prompt_ids, made.response_ids, rng), images=made.images)

    prompts = [
        [user("Which cell?", RED)],
        [user("Which cell?", BLUE)],
        [user("Which cell?", RED), user("And?", BLUE, SMALL)],
        [user("No image, but a longer text than the others.")],
    ]
    replies = [reply(prompt, text) for prompt in prompts for text in ("A1", "B2 or C3", "B2")]
    batches = {"several": replies, "one": [replies[0], *replies[-3:]]}
    return {n: pairs(b) if loss == "dpo" else b for n, b in batches.items()}


def has_replies(learner: Learner, units: list[Any]) -> bool:
    """Whether this rank reads a part of the batch, in more than one pass. The last may be empty."""
    parts = learner._micro_batches.split(units)
    return len(parts) > 1 and bool(parts[0])


def measured(batches: Callable[..., Any], model: Path, losses: Any, as_trees: bool) -> Found:
    found = {}
    for kind in KINDS:
        for loss in losses:
            learner = learner_of(model, kind, loss, max_tokens=MAX_TOKENS)
            assert learner._micro_batches.use_trees, learner.notice
            if not as_trees:
                read_padded(learner)
            for name, units in batches(loss, model).items():
                assert has_replies(learner, units) or name == "one", name
                found[f"{kind} {loss} {name}"], _ = gradients(learner, units)
    return found


def measure(rank: int, folder: Path, batches: Callable[..., Any], losses: Any) -> None:
    with rank_of(rank, 2, folder):
        found = measured(batches, folder / "m", losses, as_trees=True)
        if rank == 0:
            torch.save(found, folder / "found.pt")


def compare(folder: Path, batches: Callable[..., Any], losses: Any) -> None:
    mp.spawn(measure, args=(folder, batches, losses), nprocs=2)
    found = torch.load(folder / "found.pt")
    expected = measured(batches, folder / "m", losses, as_trees=False)
    assert found.keys() == expected.keys()
    differences = {n: relative_difference(found[n], expected[n]) for n in expected}
    assert max(differences.values()) < 1e-5, differences


@pytest.mark.parametrize(
    ("batches", "losses"),
    [(mixed_batch, ("clip",)), pytest.param(text_batches, LOSSES, marks=pytest.mark.slow)],
    ids=["mixed batch", "all losses"],
)
def test_gradients_are_those_of_padded_rows_on_one_rank(
    tmp_path: Path, batches: Any, losses: Any
) -> None:
    """With values, KL penalty and entropy bonus where the loss takes them."""
    make_tiny(tmp_path / "m", "llama", texts=["a b c"], hidden_size=64)
    compare(tmp_path, batches, losses)


@pytest.mark.slow
def test_gradients_with_images_are_those_of_padded_rows_on_one_rank(tmp_path: Path) -> None:
    make_tiny_vision(tmp_path / "m", hidden_size=64)
    compare(tmp_path, image_batches, ("clip", "dpo"))
