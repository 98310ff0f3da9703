"""Reply limits and system prompts of single roles."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from toys import AnsweringSampler, Relay, roll

from pettingllms.config import EnvConfig, RunConfig, parse_config, to_toml
from pettingllms.envs import make_env_for
from pettingllms.envs.base import observation
from pettingllms.errors import ConfigError
from pettingllms.types import Message, system

EXAMPLE = Path(__file__).parents[3] / "examples" / "06_bring_your_own_agent.py"
DIGITS = "5" * 40
TYPES: list[dict[str, Any]] = [
    {"type": "linear"},
    {"type": "tree"},
    {"type": "tree", "continuation": "episode"},
    {"type": "replay"},
]


def samplers() -> dict[str, AnsweringSampler]:
    return {role: AnsweringSampler(lambda request, number: DIGITS) for role in ("a", "b")}


@pytest.mark.parametrize("options", TYPES, ids=str)
def test_every_reply_of_a_role_has_its_limit(options: dict[str, Any]) -> None:
    asked = samplers()
    episodes = roll(Relay(), asked, max_reply_tokens=9, reply_tokens={"b": 4}, **options)
    lengths = {t.role: t.num_tokens for e in episodes for t in e.turns}
    assert lengths == {"a": 9, "b": 4}
    assert {r.max_tokens for r in asked["a"].requests} == {9}
    assert {r.max_tokens for r in asked["b"].requests} == {4}
    assert {t.finish for e in episodes for t in e.turns} == {"length"}


@pytest.mark.parametrize("options", TYPES, ids=str)
def test_a_reply_that_is_cut_at_its_role_s_limit_is_no_cut_episode(options: dict[str, Any]) -> None:
    """The environment reads it, as with the limit of all roles."""
    limits = {"max_reply_tokens": 9, "reply_tokens": {"a": 4, "b": 4}}
    for episode in roll(Relay(), samplers(), max_episode_tokens=100, **limits, **options):
        assert episode.failure is None
        assert not any(turn.limit or turn.credit.failure for turn in episode.turns)


class Instructed(Relay):
    """Has a system message for `a` only."""

    def observe(self, state: Any, role: str) -> Sequence[Message]:
        shown = super().observe(state, role)
        return [system("own prompt"), *shown] if role == "a" else shown


def seen(**prompts: str) -> dict[str, tuple[Message, ...]]:
    env = Instructed(EnvConfig(id="relay-v1", system_prompts=prompts))
    asked = {role: AnsweringSampler(lambda request, number: "5") for role in ("a", "b")}
    episodes = roll(env, asked)
    turns = [turn for turn in episodes[0].turns if turn.role in ("a", "b")]
    return {turn.role: turn.messages[:-1] for turn in turns}


def test_a_prompt_replaces_that_of_the_environment_or_comes_first() -> None:
    assert seen() == {"a": (system("own prompt"),), "b": ()}
    assert seen(a="A!") == {"a": (system("A!"),), "b": ()}
    assert seen(a="A!", b="B!") == {"a": (system("A!"),), "b": (system("B!"),)}


def config(**sections: Any) -> RunConfig:
    policy = {"kind": "lora", "model": "m"}
    base = {"env": {"id": "plan_path-v1"}, "algo": {"type": "grpo"}, "policies": {"p": policy}}
    return parse_config({**base, **sections})


def test_the_configuration_reaches_the_environment_and_is_written() -> None:
    made = config(
        env={"id": "plan_path-v1", "system_prompts": {"planner": "Plan."}},
        rollout={"reply_tokens": {"planner": 64}},
    )
    env = make_env_for(made.env)
    state = env.reset(env.tasks("train")[0], 0)
    assert observation(env, state, "planner")[0] == system("Plan.")
    assert [m for m in observation(env, state, "planner") if m.speaker == "system"][1:] == []
    assert (made.rollout.reply_limit("planner"), made.rollout.reply_limit("checker")) == (64, 512)
    assert parse_config(tomllib.loads(to_toml(made))) == made


def test_wrong_roles_and_limits_are_rejected() -> None:
    with pytest.raises(ConfigError) as caught:
        config(
            env={"id": "plan_path-v1", "system_prompts": {"plannner": "Plan."}},
            rollout={"reply_tokens": {"chekker": 64}},
        )
    assert len(caught.value.problems) == 2
    assert "env.system_prompts.plannner: 'plan_path-v1' has no such role" in str(caught.value)
    assert "did you mean 'checker'?" in str(caught.value)
    with pytest.raises(ConfigError, match="no role may exceed max_reply_tokens"):
        config(rollout={"reply_tokens": {"planner": 513}})
    with pytest.raises(ConfigError, match="whose programs write their prompts"):
        parse_config(
            {
                "env": {"id": f"{EXAMPLE}:Examples", "system_prompts": {"x": "Y"}},
                "algo": {"type": "grpo"},
                "policies": {"p": {"kind": "lora", "model": "m"}},
            }
        )
