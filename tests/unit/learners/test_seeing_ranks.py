"""Two ranks of a model that sees, of which one has images and the other has none."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.distributed as dist
import torch.multiprocessing as mp
from test_seeing import BLUE, RED, item

from pettingllms.config.policies import FullPolicy
from pettingllms.inference.vision import VisionRenderer
from pettingllms.models import make_tiny_vision
from pettingllms.types import user
from sights import learner_of


def train(rank: int, num_ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    if num_ranks > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        store = f"file://{folder / 'store'}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks)
    renderer = VisionRenderer(folder / "eyes")
    learner = learner_of(folder / "eyes", FullPolicy(model="m", lr=1e-3))
    seen = [item(renderer, user("Where is it?", picture)) for picture in (RED, BLUE)]
    batches = [[*seen, item(renderer, user("Say something."))], seen[:1]]
    found = [learner.train("p", batch, step) for step, batch in enumerate(batches)]
    if rank == 0:
        numbers = [[one["loss"], one["grad_norm"]] for one in found]
        (folder / f"{num_ranks}.json").write_text(json.dumps(numbers))
    if num_ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


@pytest.mark.slow
def test_ranks_need_not_all_have_images(tmp_path: Path) -> None:
    make_tiny_vision(tmp_path / "eyes")
    train(0, 1, tmp_path)
    mp.spawn(train, args=(2, tmp_path), nprocs=2)
    one, two = (json.loads((tmp_path / f"{n}.json").read_text()) for n in (1, 2))
    np.testing.assert_allclose(two, one, rtol=1e-3)
