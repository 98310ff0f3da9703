"""How a policy plays in the steps in which it learns, and in those in which it rests."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from pettingllms.cluster.samplers import PolicySamplers
from pettingllms.cluster.team import Team
from pettingllms.config import parse_config
from pettingllms.inference.http import JsonRenderer
from pettingllms.rollouts.scripted import text_ids
from pettingllms.types import Ids, PromptTooLong, user


def test_a_judge_reads_no_verdict_on_a_prompt_that_its_context_cannot_hold() -> None:
    """It fails as too long, and not as an engine, so that the answer cannot avoid its grade."""
    config = parse_config(
        {
            "env": {"id": "story-v1", "num_rounds": 1},
            "algo": {"type": "grpo"},
            "policies": {
                "p": {"kind": "lora", "model": "m"},
                "j": {"kind": "frozen", "model": "m"},
            },
            "roles": {"writer_1": "p", "writer_2": "p"},
            "judge": {"by": "a", "judges": {"a": {"kind": "llm", "policy": "j"}}},
            "inference": {"max_model_len": 64},
        }
    )
    samplers = PolicySamplers(config, {})
    samplers.add_model(["j"], AsyncMock(), JsonBytes(), Path())
    asked = AsyncMock(return_value=[[-1.0, -2.0]])
    read = samplers.judge("j", asked).read
    assert read is not None
    assert asyncio.run(read([user("short")], ["a", "b"])) == [-1.0, -2.0]
    found = asyncio.run(read([user("long" * 20)], ["a", "b"]))
    assert isinstance(found, PromptTooLong)
    assert asked.call_count == 1


class JsonBytes(JsonRenderer):
    """A renderer with one token per byte."""

    def encode(self, text: str) -> Ids:
        return text_ids(text)


def test_a_policy_that_rests_plays_as_when_it_learns() -> None:
    learner = {"kind": "lora", "model": "m"}
    config = parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"policy_a": learner, "policy_b": learner},
            "roles": {"planner": "policy_a", "checker": "policy_b"},
            "train": {"alternate": ["policy_a", "policy_b"]},
        }
    )
    team = Team(config, print)
    stub: Any = object()
    for names in (team._samplers._samplers, team._samplers.renderers):
        names.update(policy_a=stub, policy_b=stub)
    players = {p: team.player(team.env, p, None, config.learning(1)) for p in config.policies}
    assert {p: (player.trained, player.rests) for p, player in players.items()} == {
        "policy_a": (True, False),
        "policy_b": (False, True),
    }
    assert [player.uses_policy_sampling for player in players.values()] == [True, True]
    script = team._samplers.player(team.env, "script:bfs", "script:bfs", None, False, False)
    assert not script.uses_policy_sampling
    snapshot = team._samplers.player(team.env, "policy_a@3", "policy_a", None, False, False)
    assert snapshot.uses_policy_sampling
