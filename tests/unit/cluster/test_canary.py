"""The canary, over a learner and an engine that a test steers."""

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.cluster.canary import NUM_TOKENS, make_canary
from pettingllms.cluster.checks import check_mismatch
from pettingllms.cluster.weight_sync import Publisher
from pettingllms.envs import make_env
from pettingllms.errors import StaleWeightsError
from pettingllms.learners.batches import Item
from pettingllms.rollouts.scripted import ByteRenderer

IDS = np.array([1, 2], dtype=np.int32)


class Sides:
    """Both sides' log-probs of the canary, and the hash of the learner's weights."""

    def __init__(self) -> None:
        self.learner = self.sampler = -1.0
        self.mark = "first"
        self.version = 0
        self.base = -3.0
        self.batched: dict[str, float] = {}
        """What the sampler says of policies in a batch, where that is not what they say alone."""

    async def files(self, policy: str) -> tuple[Any, str]:
        return {}, self.mark

    async def call(self, method: str, *args: Any) -> list[Any]:
        said = self.base if method == "base_logprobs" else self.learner
        return [np.full(2, said, dtype=np.float32)]

    async def publish(self, policy: str, new: Any) -> None:
        self.version = new.version

    async def versions(self) -> list[dict[str, int]]:
        return [{"p": self.version}]

    async def score(self, policy: str, given: Any) -> list[Any]:
        said = self.base if policy == "frozen" else self.sampler
        return [np.full(2, said, dtype=np.float32)]

    async def score_together(self, policies: Any, given: Any) -> list[Any]:
        alone = {policy: (await self.score(policy, given))[0] for policy in policies}
        return [alone | {p: np.full(2, said, np.float32) for p, said in self.batched.items()}]


@pytest.fixture
def sides() -> Sides:
    return Sides()


@pytest.fixture
def publisher(sides: Sides) -> Publisher:
    canary = Item(IDS, IDS, np.zeros(2, dtype=np.float32), 0.0)
    learners: Any = sides
    made = Publisher(learners, learners, canary, 0.1, "publish_adapter", frozen=("frozen",))
    asyncio.run(made.publish("p", 0))
    return made


@pytest.fixture
def publish(publisher: Publisher) -> Any:
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


def test_every_policy_is_compared_in_one_batch(sides: Sides, publisher: Publisher) -> None:
    asyncio.run(publisher.add_snapshot("p#0", "p"))
    assert asyncio.run(publisher.check_together()) == 0.0
    assert set(publisher.expected) == {"p", "frozen", "p#0"}


@pytest.mark.parametrize("policy", ["p", "frozen", "p#0"])
def test_a_sampler_that_confuses_the_policies_of_a_batch_stops_the_run(
    policy: str, sides: Sides, publisher: Publisher
) -> None:
    """As vLLM's CPU kernel gave base requests the adapter of a request in the same batch."""
    asyncio.run(publisher.add_snapshot("p#0", "p"))
    sides.batched = {policy: -2.0}
    with pytest.raises(StaleWeightsError, match=f"with other policies, '{policy}' differs"):
        asyncio.run(publisher.check_together())


@pytest.mark.parametrize("mismatch", [0.3, float("nan")])
def test_so_does_a_gap_on_what_was_sampled(mismatch: float) -> None:
    check_mismatch("p", 0.1, 0.2)
    with pytest.raises(StaleWeightsError, match="what 'p' just sampled"):
        check_mismatch("p", mismatch, 0.2)


@pytest.mark.parametrize(("room", "num_tokens"), [(500, NUM_TOKENS), (11, 10), (0, 1)])
def test_a_canary_fits_into_the_model(room: int, num_tokens: int) -> None:
    env, renderer = make_env("tic_tac_toe-v1"), ByteRenderer()
    prompt = len(make_canary(env, renderer, 10_000).prompt_ids)
    canary = make_canary(env, renderer, prompt + room)
    assert len(canary.prompt_ids) == prompt
    assert len(canary.response_ids) == len(canary.logprobs) == num_tokens
