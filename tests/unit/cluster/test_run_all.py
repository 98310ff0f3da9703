"""Learners run one after another on a shared machine, and concurrently on separate GPUs."""

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from plays import linear, overwrite, rewards

from pettingllms.cluster.learners import run_all
from pettingllms.cluster.team import Team
from pettingllms.config import parse_config


class Room:
    """Counts who is in it."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def work(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1


class Slow:
    """A learner or critic whose work takes a while."""

    def __init__(self, room: Room, number: int) -> None:
        self._room, self._number = room, number

    async def call(self, method: str, *args: Any) -> Any:
        await self._room.work()
        return {"mismatch": 0.0, "number": float(self._number)}


def team_of_four(room: Room) -> Team:
    """Two policies on separate models, each with a critic that is a model."""
    policies = {name: {"kind": "full", "model": name} for name in ("policy_a", "policy_b")}
    config = parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "ppo"},
            "critic": {"kind": "model"},
            "policies": policies,
            "roles": {"planner": "policy_a", "checker": "policy_b"},
            "log": {"episodes": False},
        }
    )
    team = Team(config, print)
    team.versions = dict.fromkeys(policies, 0)
    for number, group in enumerate(team._groups):
        team._learners[group.name] = Slow(room, number)  # type: ignore[assignment]
    for number, plan in enumerate(team.critics.plans):
        team.critics.learners[plan.name] = Slow(room, number)  # type: ignore[assignment]
    return team


@pytest.mark.parametrize(("concurrent", "most"), [(False, 1), (True, 4)])
def test_models_and_critics_learn_concurrently_if_each_has_gpus(
    concurrent: bool, most: int
) -> None:
    room = Room()
    team = team_of_four(room)
    team.concurrent = team.critics._concurrent = concurrent
    episode = linear("t", 0, *((role, rewards(team=1.0)) for role in "ab"))
    for turn in episode.turns:
        turn.credit.advantage = 1.0
        ones = np.ones(turn.num_tokens, np.float32)
        overwrite(turn, logprobs=ones)
        turn.credit.values = turn.credit.returns = ones
    measured = asyncio.run(team.learn_all([episode], [episode.turns], 1))
    assert room.most == most
    numbers = [[found["number"] for found in kind.values()] for kind in measured]
    assert numbers == [[0, 1], [0, 1]], "what one measured went to another"


def test_in_turn_nothing_is_begun_after_what_failed() -> None:
    begun: list[int] = []

    async def work(number: int) -> int:
        begun.append(number)
        if number == 1:
            raise ValueError("broken")
        return number

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(run_all((work(number) for number in range(4)), concurrent=False))
    assert begun == [0, 1]
