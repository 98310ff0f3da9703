"""Checkpoints of two ranks, loaded by one, saved, and loaded by two again, are equal bit by bit."""

import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.distributed as dist
import torch.multiprocessing as mp
from ranks import rank_of, save_parts
from test_sharded_load import FULL, LORA, critic, items, odd_rows

from pettingllms.config import CriticConfig, LearnerConfig, loss_config
from pettingllms.learners.batches import JointAction
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.policies.files import read_content
from pettingllms.policies.tensor_shards import Shards, grouped

KINDS = {"full": "f", "lora": "a", "critic": "critic"}
"""Kinds of learners, and the policy of each that is saved."""


def made_of(kind: str, model: Path, optimizer: str = "adamw") -> Any:
    """A learner whose policy has a value head, or a separate critic."""
    if kind == "critic":
        return critic(model, False)
    policies = FULL if kind == "full" else LORA
    config = LearnerConfig(optimizer=optimizer)
    head = CriticConfig(kind="head")
    return Learner(LearnerSpec(model, policies, config, loss_config(), 16, 5, critic=head))


def update(made: Any, kind: str, step: int) -> None:
    if kind == "critic":
        made.train([JointAction(("x",), (item,)) for item in items()], step)
    else:
        made.train(KINDS[kind], items(), step)


def load(made: Any, kind: str, folder: Path) -> None:
    files = found_in(folder)
    made.load(*(() if kind == "critic" else (KINDS[kind],)), files)


def found_in(folder: Path) -> dict[str, Any]:
    return grouped({path.name: path for path in folder.iterdir()})


def contents(folder: Path) -> dict[str, bytes]:
    return {name: read_content(content) for name, content in found_in(folder).items()}


def of_two(rank: int, root: Path) -> None:
    """Train and save; wait for the single rank; load what it saved, and save again."""
    with rank_of(rank, 2, root):
        for kind, policy in KINDS.items():
            made = made_of(kind, root / "model")
            for step in (1, 2, 3):
                update(made, kind, step)
            save_parts(made, policy, root / "first" / kind)
        dist.barrier()
        (root / f"ready{rank}").touch()
        while not (root / "one_is_done").exists():
            time.sleep(0.02)
        for kind, policy in KINDS.items():
            made = made_of(kind, root / "model")
            load(made, kind, root / "one" / kind)
            save_parts(made, policy, root / "again" / kind)


def of_one(root: Path) -> None:
    for kind, policy in KINDS.items():
        made = made_of(kind, root / "model")
        load(made, kind, root / "first" / kind)
        assert made._num_updates == 3 or made._num_updates[policy] == 3
        save_parts(made, policy, root / "one" / kind)


@pytest.mark.slow
def test_two_ranks_one_and_two_again_are_bit_equal(tmp_path: Path) -> None:
    odd_rows(tmp_path / "model")
    ranks = mp.spawn(of_two, args=(tmp_path,), nprocs=2, join=False)
    while not all((tmp_path / f"ready{rank}").exists() for rank in range(2)):
        assert not ranks.join(0.05), "both ranks ended before they were done"
    try:
        of_one(tmp_path)
    finally:
        (tmp_path / "one_is_done").touch()
    while not ranks.join():
        pass
    for kind in KINDS:
        first, one, again = (tmp_path / place / kind for place in ("first", "one", "again"))
        assert all(isinstance(f, Shards) for n, f in found_in(first).items() if n.endswith("s"))
        assert all(isinstance(file, Path) for file in found_in(one).values())
        assert contents(first) == contents(one) == contents(again)
        assert len(contents(first)) >= 2
        names = {path.name for path in again.iterdir()}
        assert names == {path.name for path in first.iterdir()}
        for name in names:  # also each rank's part by itself
            assert (again / name).read_bytes() == (first / name).read_bytes()
