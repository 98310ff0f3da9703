"""Far more requests than an engine serves at once: they wait, and the deadline does not run."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from toys import Duel, Relay, play_with
from virtual_time import VirtualLoop, virtual_time  # noqa: F401 - a fixture

from pettingllms.cluster import engines as module
from pettingllms.cluster.engines import Engines
from pettingllms.cluster.reservation import Place, local_places
from pettingllms.config import InferenceConfig
from pettingllms.errors import EngineDiedError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import Episode, Sample, SampleRequest, ScoreRequest

AT_ONCE = 4
SECONDS = 0.05
"""Of one reply."""


class Remote:
    """A method of an actor, called as Ray's are."""

    def __init__(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._method = method

    def remote(self, *args: Any) -> "asyncio.Task[Any]":
        return asyncio.ensure_future(self._method(*args))


class SmallEngine:
    """Serves few replies at once and queues the rest, as engines do; `hangs` stops it."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.in_flight = self.most = self.num_cancelled = 0
        self.hangs = False
        self.starts = Remote(self._start)
        self.sample = Remote(self._sample)
        self.sample_many = Remote(self._sample_many)
        self.score_many = Remote(self._score_many)
        self.start = Remote(self._start)
        self.stop = Remote(self._start)

    async def _start(self) -> None: ...

    async def _sample(self, request: SampleRequest) -> list[Sample]:
        self.in_flight += request.num_samples
        self.most = max(self.most, self.in_flight)
        try:
            return list(await asyncio.gather(*(self._reply() for _ in range(request.num_samples))))
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.in_flight -= request.num_samples

    async def _reply(self) -> Sample:
        async with self.free:
            await asyncio.sleep(60 if self.hangs else SECONDS)
        return Sample(np.array([52], np.int32), np.array([-0.5], np.float32), 0, "stop")

    async def _sample_many(self, requests: list[SampleRequest]) -> list[list[Sample]]:
        return list(await asyncio.gather(*map(self._sample, requests)))

    async def _score_many(self, policy: str, given: list[ScoreRequest], *_: Any) -> list[Any]:
        self.most = max(self.most, self.in_flight + len(given))
        await asyncio.sleep(SECONDS)
        return [np.zeros(1, np.float32) for _ in given]


class Small(Engines):
    """Engines whose replicas are small ones in this process."""

    def _create(self, spec: EngineSpec, place: Place) -> Any:
        return SmallEngine()


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch, virtual_time: object) -> None:  # noqa: F811
    monkeypatch.setattr(module.ray, "cancel", lambda answer: answer.cancel())
    monkeypatch.setattr(module.ray, "kill", lambda actor: None)


def small(engine: str = "vllm", replicas: int = 1) -> Small:
    config = InferenceConfig(engine=engine, max_num_seqs=AT_ONCE)
    spec = EngineSpec(Path("model"), config, ("p",))
    return Small([spec] * replicas, local_places(replicas), 1, lambda _: None)


def play(engines: Engines, env: Any, **options: Any) -> list[Episode]:
    players = {role: Player("p", engines, ByteRenderer()) for role in env.roles}
    return play_with(env, players, **options)


@pytest.mark.parametrize("engine", ["vllm", "torch"])
@pytest.mark.parametrize("type_", ["linear", "tree"])
def test_fifty_times_more_requests_than_an_engine_serves_lose_no_episode(engine, type_) -> None:
    engines = small(engine)
    siblings = {"num_tasks": 20, "num_samples": 5} if type_ == "linear" else {"num_tasks": 20}
    episodes = play(
        engines, Duel(), type=type_, sampler_timeout=0.5, **{"num_samples": 5, **siblings}
    )
    assert len(episodes) == (100 if type_ == "linear" else 20)
    assert [e.failure for e in episodes if e.failure is not None] == []
    siblings_over = 4 if type_ == "tree" else 0
    assert engines.replicas[0].actor.most <= AT_ONCE + siblings_over


@pytest.mark.parametrize("engine", ["vllm", "torch"])
def test_a_stuck_engine_fails_all_who_wait_after_one_deadline(engine) -> None:
    engines = small(engine)
    engines.replicas[0].actor.hangs = True
    episodes = play(engines, Duel(), num_tasks=20, num_samples=5, sampler_timeout=0.3)
    assert VirtualLoop.latest == pytest.approx(0.3), "one deadline, and not one for each round"
    assert len(episodes) == 100
    reasons = {
        turn.credit.failure.reason for e in episodes for turn in e.turns if turn.credit.failure
    }
    assert any("no reply within 0.3 s (rollout.sampler_timeout)" in r for r in reasons)
    assert any("the server answered no request" in r for r in reasons)
    assert all(episode.failure is not None for episode in episodes)
    assert engines.replicas[0].actor.in_flight == 0


def test_requests_are_served_in_the_order_in_which_they_came() -> None:
    served: list[int] = []

    async def run() -> None:
        engines = small()
        actor = engines.replicas[0].actor
        reply = actor._sample

        async def sample(request: SampleRequest) -> list[Sample]:
            served.append(request.seed)
            return await reply(request)

        actor.sample = Remote(sample)
        requests = [
            SampleRequest("p", "r", np.array([1], np.int32), 1 + seed % 3, 1, seed, "t")
            for seed in range(40)
        ]
        await asyncio.gather(*map(engines.sample, requests))

    asyncio.run(run())
    assert served == list(range(40))


def test_a_request_that_is_cancelled_gives_up_its_place() -> None:
    async def run() -> None:
        engines = small()
        actor = engines.replicas[0].actor
        actor.hangs = True
        request = SampleRequest("p", "r", np.array([1], np.int32), 1, 1, 0, "t")
        tasks = [asyncio.create_task(engines.sample(request)) for _ in range(12)]
        await asyncio.sleep(0.01)
        for task in (*tasks[:2], *tasks[6:8]):  # two in flight, two that wait
            task.cancel()
        await asyncio.sleep(0.01)
        assert actor.num_cancelled == 2
        assert actor.in_flight == AT_ONCE
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        actor.hangs = False
        assert len(await engines.sample(request)) == 1

    asyncio.run(run())


def test_the_clock_stands_while_an_engine_is_started_again(monkeypatch) -> None:
    engines = small()

    async def die(request: SampleRequest) -> list[Sample]:
        raise EngineDiedError("gone")

    async def start_again(replica: Any, spec: Any, error: Exception) -> None:
        await asyncio.sleep(1.5)
        replica.actor = SmallEngine()

    engines.replicas[0].actor.sample = Remote(die)
    monkeypatch.setattr(engines, "_restart_replica", start_again)
    episodes = play(engines, Relay(), num_tasks=2, num_samples=1, sampler_timeout=1.0)
    assert [episode.failure for episode in episodes] == [None, None]


def test_scoring_takes_places_as_sampling_does() -> None:
    async def run() -> int:
        engines = small()
        given = ScoreRequest(np.array([1], np.int32), np.array([2], np.int32))
        request = SampleRequest("p", "r", np.array([1], np.int32), 1, 1, 0, "t")
        both = [engines.sample(request), engines.score_many("p", [given])]
        await asyncio.gather(*both, *(engines.sample(request) for _ in range(10)))
        return engines.replicas[0].actor.most

    assert asyncio.run(run()) <= AT_ONCE
