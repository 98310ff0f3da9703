"""How a policy plays in the steps in which it learns, and in those in which it rests."""

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from pettingllms.cluster.team import Team
from pettingllms.config import parse_config


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
