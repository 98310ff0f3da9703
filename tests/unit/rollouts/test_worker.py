import asyncio
import gc

import pytest
from toys import Relay, roll

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.errors import ClusterError
from pettingllms.rollouts import Player, Worker, worker
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import Sample, SampleRequest


def test_the_collector_is_left_as_it_was_found() -> None:
    before, ours = gc.get_threshold(), (701, 11, 12)
    gc.set_threshold(*ours)
    try:
        roll(Relay(), num_tasks=1)
        assert gc.get_threshold() == ours
    finally:
        gc.set_threshold(*before)


def test_workers_that_overlap_leave_the_collector_as_the_first_found_it() -> None:
    before, ours = gc.get_threshold(), (701, 11, 12)
    first, second = worker.rare_collections(), worker.rare_collections()
    gc.set_threshold(*ours)
    try:
        first.__enter__()
        second.__enter__()
        assert gc.get_threshold() == worker.RARELY
        first.__exit__(None, None, None)
        assert gc.get_threshold() == worker.RARELY, "the second one still runs"
        second.__exit__(None, None, None)
        assert gc.get_threshold() == ours
    finally:
        gc.set_threshold(*before)


def test_an_episode_that_is_lost_without_a_word_is_an_error(monkeypatch) -> None:
    async def vanish(table, episode, path) -> None:
        raise asyncio.CancelledError

    monkeypatch.setitem(worker.ROLLOUTS, "linear", vanish)
    with pytest.raises(AssertionError, match="lost: .*train-0/0"):
        roll(Relay(), num_tasks=1)


def test_engines_that_are_gone_end_a_batch_with_one_error() -> None:
    class Gone:
        async def sample(self, request: SampleRequest) -> list[Sample]:
            await asyncio.sleep(0)
            raise ClusterError("no engine is left")

    env = Relay()
    players = {role: Player("p", Gone(), ByteRenderer()) for role in env.roles}
    play = Worker(env, players, RolloutConfig(type="linear"), RewardConfig())
    with pytest.raises(ClusterError, match="no engine is left"):
        asyncio.run(play.run(env.tasks("train")[:3], 0, lambda _: None))


def test_a_rollout_that_was_never_resolved_is_refused() -> None:
    with pytest.raises(ValueError, match="a worker needs 'linear', 'tree' or 'replay'"):
        Worker(Relay(), {}, RolloutConfig(), RewardConfig())
