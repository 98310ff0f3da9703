"""Two ranks of a critic, or of a learner with heads, do what one does, and load what one saved."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.distributed as dist
import torch.multiprocessing as mp
from test_critic import KINDS, alone, critic, learner, replies, rounds, with_logprobs

from pettingllms.models import make_tiny

SIZE = {"max_batch_tokens": 24}


def of_rank_0(value: Any) -> Any:
    if dist.is_initialized():
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]
    return value


def train_critic(model: Path, mixer: str | None) -> list[float]:
    made = critic(model, mixer, **SIZE)
    joints = alone(replies(1, 5)) if mixer is None else rounds(1)
    losses = [made.train(joints, step)["value_loss"] for step in range(3)]
    again = critic(model, mixer, **SIZE)
    again.load(of_rank_0(made.saved()))
    after = [one.train(joints, 9)["value_loss"] for one in (made, again)]
    assert after[0] == after[1], "what was saved goes on otherwise"
    return [
        *losses,
        *(float(x) for row, mixed in made.values(joints) for x in (row[-1], *(mixed or ()))),
    ]


def train_heads(model: Path, kind: str) -> list[float]:
    policy = next(iter(KINDS[kind]))
    made = learner(model, KINDS[kind], **SIZE)
    items = with_logprobs(made, policy, replies(1, 5))
    losses = [made.train(policy, items, step)["value_loss"] for step in range(3)]
    files = {**made.files(policy)[0], **made.state(policy)}
    again = learner(model, KINDS[kind], **SIZE)
    again.load(policy, of_rank_0(files))
    after = [one.train(policy, items, 9)["value_loss"] for one in (made, again)]
    assert after[0] == after[1], "what was saved goes on otherwise"
    return [*losses, *(float(row[-1]) for row in made.values(policy, items))]


def train_all(rank: int, num_ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    if num_ranks > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        store = f"file://{folder / 'store'}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks)
    model = folder / "tiny"
    found = {f"critic {mixer}": train_critic(model, mixer) for mixer in (None, "sum", "monotonic")}
    found |= {f"heads {kind}": train_heads(model, kind) for kind in KINDS}
    if rank == 0:
        (folder / f"{num_ranks}.json").write_text(json.dumps(found))
    if num_ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_do_what_one_does(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny", texts=[f"count {n}" for n in range(50)], hidden_size=64)
    train_all(0, 1, tmp_path)
    mp.spawn(train_all, args=(2, tmp_path), nprocs=2)
    one, two = (json.loads((tmp_path / f"{n}.json").read_text()) for n in (1, 2))
    for name, numbers in one.items():
        np.testing.assert_allclose(two[name], numbers, atol=1e-3, err_msg=name)
