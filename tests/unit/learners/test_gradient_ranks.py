"""Two ranks: gradients are reduced once per accumulation, and chunked log-probs change nothing."""

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("PIL")

import torch.distributed as dist
import torch.multiprocessing as mp
from image_prompts import RED
from ranks import note, noted, rank_of
from test_checkpointing import gradients
from test_vlm_learner import item

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners import accumulation, output_head
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.weights import whole
from pettingllms.models import make_tiny, make_tiny_vision
from pettingllms.types import user

SYNC_IN_EVERY_PASS = (accumulation, "MAX_WHOLE_GRADIENTS", -1)
CHUNKS = ((output_head, "CHUNK_BYTES", 4096), (output_head, "FROZEN_CPU_BYTES", 4096))
"""Two tokens per chunk at a vocabulary of 512."""


def measured(compute: Any, *settings: Any) -> tuple[dict[str, Any], int]:
    """Gradients under changed constants, and how often ranks reduced gradients."""
    with pytest.MonkeyPatch.context() as patch:
        reduce = Mock(side_effect=dist.reduce_scatter_single)
        patch.setattr(dist, "reduce_scatter_single", reduce)
        for setting in settings:
            patch.setattr(*setting)
        found = compute()
    return found, reduce.call_count


def largest_error(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """Relative to the whole gradient."""
    norm = max(float(grad.norm()) for grad in expected.values())
    return max(float((found[n] - grad).norm()) for n, grad in expected.items()) / norm


def compare(compute: Any) -> dict[str, Any]:
    often, num_often = measured(compute, SYNC_IN_EVERY_PASS)
    once, num_once = measured(compute)
    chunked, _ = measured(compute, *CHUNKS)
    return {
        "once": largest_error(once, often),
        "chunked": largest_error(chunked, once),
        "reductions": [num_often, num_once],
    }


def image_gradients(model: Path, dtype: Any) -> dict[str, Any]:
    """Images in the first pass only, and on one rank only."""
    config = LearnerConfig(max_batch_tokens=16, dtype=dtype)
    policy = FullPolicy(model="m")
    spec = LearnerSpec(model, {"p": policy}, config, loss_config(), 64, 1)
    made, renderer = Learner(spec), VisionRenderer(model)
    prompts = [user("Where is it?", RED), *(user("go on" * n) for n in (5, 2, 1, 1))]
    items = [item(renderer, prompt) for prompt in prompts]
    made._accumulate("p", items, None, made._loss_config(1, 0))
    return {n: whole(p.grad) for n, p in made._parameters("p").items()}


def compare_all(rank: int, num_ranks: int, folder: Path) -> None:
    with rank_of(rank, num_ranks, folder):
        found = {}
        for dtype in ("float32", "bfloat16"):
            for kind in ("lora", "full", "critic"):
                options = {"activation_checkpointing": True, "dtype": dtype}
                compute = partial(gradients, folder / "tiny", kind, **options)
                found[f"{kind} {dtype}"] = compare(compute)
            found[f"images {dtype}"] = compare(partial(image_gradients, folder / "eyes", dtype))
        note(found, rank, num_ranks, folder)


@pytest.mark.slow
def test_two_ranks_reduce_gradients_once(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny", texts=[f"count {n}" for n in range(50)], hidden_size=64)
    make_tiny_vision(tmp_path / "eyes")
    mp.spawn(compare_all, args=(2, tmp_path), nprocs=2)
    for kind, found in noted(2, tmp_path).items():
        num_often, num_once = found["reductions"]
        # A reduction per layer, of the rest of the model, and of the value head; two accumulations.
        expected = {"lora": 4, "full": 6, "critic": 8, "images": 3}[kind.split()[0]]
        assert num_once == expected, kind
        assert num_often >= 2 * num_once, kind
        assert found["once"] < 1e-5, kind
        # In bfloat16 the optimizer step before has amplified rounding.
        assert found["chunked"] < (1e-5 if "float32" in kind else 0.1), kind
        assert (found["chunked"] > 0) == ("critic" not in kind), "log-probs were not chunked"
