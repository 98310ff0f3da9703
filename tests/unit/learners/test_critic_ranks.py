"""Two ranks of a critic, or of a learner with heads, do what one does, and load what one saved."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.distributed as dist
import torch.multiprocessing as mp
from ranks import note, noted, rank_of
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
    joint_actions = alone(replies(1, 5)) if mixer is None else rounds(1)
    losses = [made.train(joint_actions, step)["value_loss"] for step in range(3)]
    again = critic(model, mixer, **SIZE)
    again.load(of_rank_0(made.saved()))
    after = [one.train(joint_actions, 9)["value_loss"] for one in (made, again)]
    assert after[0] == after[1], "what was saved goes on otherwise"
    found = made.values(joint_actions)
    assert all((team is None) == (mixer is None) for _, team in found)
    last = [float(row[-1]) for row, _ in found]
    return [*losses, *last, *(team for _, team in found if team is not None)]


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
    with rank_of(rank, num_ranks, folder):
        model = folder / "tiny"
        mixers = None, "sum", "monotonic"
        found = {f"critic {mixer}": train_critic(model, mixer) for mixer in mixers}
        found |= {f"heads {kind}": train_heads(model, kind) for kind in KINDS}
        note(found, rank, num_ranks, folder)


@pytest.mark.slow
def test_two_ranks_do_what_one_does(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny", texts=[f"count {n}" for n in range(50)], hidden_size=64)
    train_all(0, 1, tmp_path)
    mp.spawn(train_all, args=(2, tmp_path), nprocs=2)
    one, two = noted(1, tmp_path), noted(2, tmp_path)
    for name, numbers in one.items():
        np.testing.assert_allclose(two[name], numbers, atol=1e-3, err_msg=name)
