"""Which critic reads and learns what, with learners that only remember what they were told."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from plays import linear, rewards

from pettingllms.cluster.critics import Critics, check_same_tokenizer
from pettingllms.config import parse_config
from pettingllms.config.policies import FullPolicy
from pettingllms.errors import ModelError
from pettingllms.learners.batches import JointAction
from pettingllms.models import make_tiny
from pettingllms.policies import ModelGroup
from pettingllms.types import Episode


class Told:
    """A critic that says of each reply how many it was asked about before."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def load(self, name: str, files: Any) -> None:
        self.calls.append((f"load {name}", files))

    async def call(self, method: str, *args: Any) -> Any:
        self.calls.append((method, args[0] if args else None))
        if method == "values":
            items = [item for joint_action in args[0] for item in joint_action.items]
            return [(np.full(3, at, np.float32), float(at)) for at, _ in enumerate(items)]
        return {"trained": float(len(args[0]))} if method == "train" else None


def critics(algo: str, kind: str = "model") -> tuple[Critics, dict[str, Told]]:
    policy = {"kind": "lora", "model": "m"}
    config = parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": algo},
            "critic": {"kind": kind},
            "policies": {"policy_a": policy, "policy_b": policy},
            "roles": {"planner": "policy_a", "checker": "policy_b"},
        }
    )
    made, told = Critics(config), {}
    for plan in made.plans:
        told[plan.name] = made.learners[plan.name] = Told()
    return made, told


def played() -> Episode:
    return linear("t", 0, *((role, rewards(team=1.0)) for role in "aba"))


def roles_of(joint_actions: list[JointAction]) -> list[tuple[str, ...]]:
    return [joint_action.roles for joint_action in joint_actions]


def test_each_policys_critic_reads_its_own_turns() -> None:
    made, told = critics("ppo")
    episode = played()
    asyncio.run(made.value([[turn] for turn in episode.turns]))
    ((_, own),), ((_, others),) = told["critic:policy_a"].calls, told["critic:policy_b"].calls
    assert (roles_of(own), roles_of(others)) == ([("a",), ("a",)], [("b",)])
    assert [turn.credit.values[0] for turn in episode.turns] == [0, 0, 1]


def test_one_critic_of_the_team_reads_joints_and_learns_from_those_with_targets() -> None:
    made, told = critics("qmix")
    episode = played()
    joint_actions = [episode.turns[:2], episode.turns[2:]]
    asyncio.run(made.value(joint_actions))
    assert [turn.credit.counterfactual_value for turn in episode.turns] == [0.0, 1.0, 2.0]
    for turn in joint_actions[0]:
        turn.credit.returns = np.ones(3, np.float32)
    assert asyncio.run(made.learn(joint_actions, 1)) == {"critic:team": {"trained": 1.0}}
    asked, trained = (joint_actions for _, joint_actions in told["critic:team"].calls)
    assert roles_of(asked) == [("a", "b"), ("a",)]
    assert roles_of(trained) == [("a", "b")]


def test_a_critic_that_has_nothing_to_read_is_not_asked() -> None:
    made, told = critics("ppo")
    episode = linear("t", 0, ("a", rewards(team=1.0)))
    asyncio.run(made.value([episode.turns]))
    assert asyncio.run(made.learn([episode.turns], 1)) == {}
    assert told["critic:policy_b"].calls == []


def test_value_heads_are_no_separate_critics() -> None:
    made, _ = critics("ppo", kind="head")
    asyncio.run(made.value([played().turns]))
    assert (made.plans, made.centralized) == ([], False)


def test_each_takes_up_its_own_files() -> None:
    made, told = critics("ppo")
    asyncio.run(made.load({"policy_a": {"x": b""}, "critic:policy_b": {"y": b""}}))
    assert told["critic:policy_a"].calls == []
    assert told["critic:policy_b"].calls == [("load critic:policy_b", {"y": b""})]


def test_a_critic_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    one = make_tiny(tmp_path / "one", texts=["red green blue"] * 9, hidden_size=64, num_layers=1)
    two = make_tiny(tmp_path / "two", texts=["vier funf"] * 9, hidden_size=64, num_layers=1)
    same = make_tiny(tmp_path / "same", texts=["red green blue"] * 9, hidden_size=128, num_layers=1)
    made, _ = critics("vdn")
    (plan,) = made.plans
    policy = FullPolicy(kind="full", model=str(one))
    read = ModelGroup("a", str(one), full=("policy_a", policy))
    other = ModelGroup("b", str(one), full=("other", policy))
    check_same_tokenizer(plan, one, read, one)
    check_same_tokenizer(plan, same, read, one)
    check_same_tokenizer(plan, two, other, one)
    with pytest.raises(ModelError, match="tokenizer differs from that of the model of policy_a"):
        check_same_tokenizer(plan, two, read, one)
