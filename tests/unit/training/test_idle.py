"""Idle shares are those of a step, as means over processes."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

from pettingllms.cluster.use import TeamUse
from pettingllms.config import InferenceConfig
from pettingllms.inference.engines.base import Capabilities, EngineSpec, InferenceEngine
from pettingllms.inference.engines.metered import metered
from pettingllms.runtime.busy_clock import BusyClock, Use
from pettingllms.training.idle import IdleTime
from pettingllms.types import LogProbs, SampleRequest, ScoreRequest


class FakeTeam:
    now = 0.0
    engines: dict[str, Use] = {}
    learners: dict[str, Use] = {}

    async def use(self) -> TeamUse:
        return TeamUse(self.engines, self.learners)


def test_shares_are_means_over_processes_since_the_last_step() -> None:
    team: Any = FakeTeam()

    async def main() -> list[dict[str, float]]:
        idle = IdleTime(team, lambda: team.now)
        team.now, team.engines = 10.0, {"m 0": Use(8.0, 4.0), "m 1": Use(4.0, 2.0)}
        team.learners = {"m": Use(5.0, 5.0), "critic": Use(0.0, 0.0)}
        found = [await idle.measure()]
        team.now = 20.0
        # The first engine was busy all the time; the second one was started again.
        team.engines = {"m 0": Use(18.0, 14.0), "m 1": Use(2.0, 1.0)}
        team.learners = {"m": Use(5.0, 5.0), "critic": Use(0.0, 0.0)}
        return [*found, await idle.measure()]

    first, second = asyncio.run(main())
    assert first == pytest.approx({"engines": 0.4, "slots": 0.7, "learners": 0.75})
    assert second == pytest.approx({"engines": 0.4, "slots": 0.45, "learners": 1.0})


def test_a_run_without_learners_has_no_share_of_them() -> None:
    team: Any = FakeTeam()
    team.engines = {"m 0": Use(1.0, 1.0)}
    assert "learners" not in asyncio.run(IdleTime(team).measure())


@pytest.mark.parametrize("lockstep", [True, False])
def test_an_engine_counts_each_reply_once(lockstep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr(
        "pettingllms.inference.engines.metered.BusyClock",
        lambda num_slots: BusyClock(num_slots, lambda: seconds[0]),
    )

    class Engine(InferenceEngine):
        """Takes one second for everything."""

        capabilities = Capabilities(lockstep=lockstep)

        def __init__(self, spec: EngineSpec) -> None: ...

        async def start(self) -> None: ...

        async def sample(self, request: SampleRequest) -> Any:
            if lockstep:
                return (await self.sample_many([request]))[0]
            seconds[0] += 1
            return []

        async def sample_many(self, requests: Any) -> Any:
            if not lockstep:
                return await super().sample_many(requests)
            seconds[0] += 1
            return [[] for _ in requests]

        async def score(self, policy: str, given: ScoreRequest, temperature: float = 1) -> LogProbs:
            seconds[0] += 1
            return np.empty(0, np.float32)

        async def versions(self) -> dict[str, int]:
            return {}

    async def main() -> Use:
        spec = EngineSpec(Path("m"), InferenceConfig(engine="torch", max_num_seqs=8), ("p",))
        engine: Any = metered(Engine)(spec)
        request = SampleRequest("p", "r", np.zeros(1, np.int32), 2, 5, 0, "t")
        await engine.sample(request)
        await engine.sample_many([request])
        await engine.score("p", ScoreRequest(request.prompt_ids, request.prompt_ids))
        use: Use = await engine.use()
        return use

    assert asyncio.run(main()) == Use(2.0, 2.0 * 2 / 8)
