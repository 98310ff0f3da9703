"""Batches that ranks build from references."""

from typing import Any

import pytest

pytest.importorskip("torch")

from pettingllms.learners.deferred import Deferred
from pettingllms.learners.rank import Rank


def test_a_rank_builds_what_was_deferred() -> None:
    class Learner:
        def train(self, policy: str, items: list[int], step: int) -> Any:
            return policy, items, step

    rank = Rank.__new__(Rank)
    rank._learner = Learner()  # type: ignore[assignment]
    batch = Deferred(lambda turns: [one + 1 for one in turns], [1, 2])
    assert rank.call("train", "p", batch, 7) == ("p", [2, 3], 7)
