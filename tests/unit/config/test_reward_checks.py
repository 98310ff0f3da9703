"""Rewards that are never given: judges without submissions, and shaping without an effect."""

from typing import Any

import pytest

from pettingllms.config import parse_config
from pettingllms.errors import ConfigError

BASE: dict[str, Any] = {
    "env": {"id": "debate-v1"},
    "algo": {"type": "grpo"},
    "policies": {"p": {"kind": "lora", "model": "some/model"}},
}
JUDGED = {"by": "v", "judges": {"v": {"kind": "verifier", "url": "http://127.0.0.1:1"}}}


def problems(**sections: Any) -> list[str]:
    try:
        parse_config({**BASE, **sections})
    except ConfigError as error:
        return error.problems
    return []


@pytest.mark.parametrize("env", ["debate-v1", "math-v1"])
def test_a_judge_needs_submissions(env: str) -> None:
    (found,) = problems(env={"id": env}, judge=JUDGED)
    assert found == (
        f"judge: '{env}' submits nothing to a judge, so it would give no reward; set env.judged = "
        "true, or remove the section"
    )
    assert problems(env={"id": env, "judged": True}, judge=JUDGED) == []


def test_an_environment_that_never_submits_cannot_be_judged() -> None:
    (found,) = problems(env={"id": "tic_tac_toe-v1"}, judge=JUDGED)
    assert found == (
        "judge: 'tic_tac_toe-v1' submits nothing to a judge, so it would give no reward; remove "
        "the section, or name an environment that submits"
    )


def test_environments_that_submit_beside_their_own_rewards_can_be_judged() -> None:
    for env in ("negotiation-v1", "debugging-v1", "story-v1"):
        assert problems(env={"id": env}, judge={"by": "rule"}) == []


def test_a_judged_environment_without_a_judge_is_judged_by_its_rule() -> None:
    config = parse_config({**BASE, "env": {"id": "debate-v1", "judged": True}})
    assert config.judge is not None
    assert config.judge.by == "rule"


def test_influence_shaping_that_would_do_nothing_is_rejected() -> None:
    shaped = {"influence": {"alpha": 0.5}}
    assert problems(reward=shaped) == []
    (found,) = problems(reward={**shaped, "process": 0.0})
    assert found.startswith("reward.influence: changes process rewards, and reward.process is 0")
    for algo in ("vdn", "qmix", "magrpo"):
        (found,) = problems(algo={"type": algo}, reward=shaped)
        assert found.startswith(f"reward.influence: '{algo}' uses only team rewards")
    (found,) = problems(algo={"type": "debate"}, reward=shaped)
    assert found.startswith("reward.influence: 'debate' has the same options under [algo]")
