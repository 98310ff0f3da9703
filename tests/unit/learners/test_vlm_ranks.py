"""Two ranks of a VLM, of which one has images and the other has none."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.multiprocessing as mp
from image_prompts import learner_of
from ranks import note, noted, rank_of
from test_vlm_learner import BLUE, RED, item

from pettingllms.config.policies import FullPolicy
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.models import make_tiny_vision
from pettingllms.types import user


def train(rank: int, num_ranks: int, folder: Path) -> None:
    with rank_of(rank, num_ranks, folder):
        renderer = VisionRenderer(folder / "eyes")
        learner = learner_of(folder / "eyes", FullPolicy(model="m", lr=1e-3))
        seen = [item(renderer, user("Where is it?", picture)) for picture in (RED, BLUE)]
        batches = [[*seen, item(renderer, user("Say something."))], seen[:1]]
        found = [learner.train("p", batch, step) for step, batch in enumerate(batches)]
        note([[one["loss"], one["grad_norm"]] for one in found], rank, num_ranks, folder)


@pytest.mark.slow
def test_ranks_need_not_all_have_images(tmp_path: Path) -> None:
    make_tiny_vision(tmp_path / "eyes")
    train(0, 1, tmp_path)
    mp.spawn(train, args=(2, tmp_path), nprocs=2)
    np.testing.assert_allclose(noted(2, tmp_path), noted(1, tmp_path), rtol=1e-3)
