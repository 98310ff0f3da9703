"""Engines that another process owns: a dead one is reported once, and all requests are repeated."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from ray.exceptions import RayActorError

from pettingllms.cluster.engine_client import EngineLinks
from pettingllms.cluster.rollout_workers import Death, LinkedEngines
from pettingllms.types import Sample, SampleRequest


class Actor:
    def __init__(self, is_dead: bool = False) -> None:
        self.is_dead, self.most, self.num = is_dead, 0, 0
        self.sample = self

    def remote(self, request: SampleRequest) -> Any:
        return asyncio.ensure_future(self._sample(request))

    async def _sample(self, request: SampleRequest) -> list[Sample]:
        self.num += 1
        self.most = max(self.most, self.num)
        await asyncio.sleep(0.01)
        self.num -= 1
        if self.is_dead:
            raise RayActorError
        return [Sample(request.prompt_ids, None, 0, "stop")]


def ask(number: int) -> SampleRequest:
    return SampleRequest("p", "r", np.array([number], np.int32), 1, 1, number, "t")


def test_a_dead_engine_is_reported_once_and_every_request_is_answered() -> None:
    async def run() -> None:
        dead, alive = Actor(is_dead=True), Actor()
        deaths: asyncio.Queue[Death] = asyncio.Queue()
        links = EngineLinks(Path("m"), ("p",), ((dead, 2),), 8, False)
        engines = LinkedEngines(links, 5, deaths)
        asked = [asyncio.create_task(engines.sample(ask(number))) for number in range(20)]
        death = await deaths.get()
        assert (death.model, death.at, death.generation) == (5, 0, 2)
        await asyncio.sleep(0.05)
        assert deaths.empty()
        assert not any(task.done() for task in asked)
        engines.replace(0, alive, 3)
        found = await asyncio.gather(*asked)
        assert [int(sample.ids[0]) for (sample,) in found] == list(range(20))
        assert alive.most == 8

    asyncio.run(run())


def test_a_share_bounds_the_requests_in_flight() -> None:
    async def run() -> None:
        actor = Actor()
        links = EngineLinks(Path("m"), ("p",), ((actor, 0),), 8, False)
        engines = LinkedEngines(links, 0, asyncio.Queue())
        engines.bound(3)
        asked = [asyncio.create_task(engines.sample(ask(number))) for number in range(30)]
        await asyncio.sleep(0.03)
        assert actor.most == 3
        engines.bound(6)
        await asyncio.gather(*asked)
        assert actor.most == 6

    asyncio.run(run())
