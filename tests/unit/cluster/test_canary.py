"""The canary, over a learner and an engine that a test steers."""

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.cluster.publishing import Publisher
from pettingllms.cluster.refusals import refuse_gap
from pettingllms.errors import StaleWeightsError
from pettingllms.learners.batches import Item

IDS = np.array([1, 2], dtype=np.int32)


class Sides:
    """Both sides' log-probs of the canary, and the hash of the learner's weights."""

    def __init__(self) -> None:
        self.learner = self.sampler = -1.0
        self.mark = "first"
        self.version = 0

    async def files(self, policy: str) -> tuple[Any, str]:
        return {}, self.mark

    async def call(self, method: str, policy: str, items: Any, *args: Any) -> list[Any]:
        return [np.full(2, self.learner, dtype=np.float32)]

    async def publish(self, policy: str, new: Any) -> None:
        self.version = new.version

    async def versions(self) -> list[dict[str, int]]:
        return [{"p": self.version}]

    async def score(self, policy: str, given: Any) -> list[Any]:
        return [np.full(2, self.sampler, dtype=np.float32)]


@pytest.fixture
def sides() -> Sides:
    return Sides()


@pytest.fixture
def publish(sides: Sides) -> Any:
    canary = Item(IDS, IDS, np.zeros(2, dtype=np.float32), 0.0)
    learners: Any = sides
    publisher = Publisher(learners, learners, canary, max_gap=0.1, method="publish_adapter")
    asyncio.run(publisher.publish("p", 0))
    return lambda: asyncio.run(publisher.publish("p", 1))


def test_both_sides_move_together(sides: Sides, publish: Any) -> None:
    sides.learner = sides.sampler = -2.0
    sides.mark = "second"
    assert publish() == 0.0


def test_weights_that_change_nothing_yet_are_no_stale_ones(sides: Sides, publish: Any) -> None:
    """As an adapter's whose one half decays while the other is still zero."""
    sides.mark = "second"
    assert publish() == 0.0


def test_a_sampler_that_says_what_it_said_before_is_stale(sides: Sides, publish: Any) -> None:
    sides.learner, sides.mark = -1.01, "second"
    with pytest.raises(StaleWeightsError, match="version 1 was not published"):
        publish()


@pytest.mark.parametrize("said", [-2.0, float("nan")])
def test_sides_that_differ_stop_the_run(said: float, sides: Sides, publish: Any) -> None:
    sides.learner = said
    with pytest.raises(StaleWeightsError, match="sampler and learner differ"):
        publish()


@pytest.mark.parametrize("gap", [0.3, float("nan")])
def test_so_does_a_gap_on_what_was_sampled(gap: float) -> None:
    refuse_gap("p", 0.1, 0.2)
    with pytest.raises(StaleWeightsError, match="what 'p' just sampled"):
        refuse_gap("p", gap, 0.2)
