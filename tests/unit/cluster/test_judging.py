"""The judges of a run: by which environment's rule they judge."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.cluster.judging import Judges, Played
from pettingllms.config import parse_config
from pettingllms.types import Episode, Exhibit, Rewards, Scored, Step, Task


def level(number: float) -> Any:
    return SimpleNamespace(rule=lambda exhibit, part: Scored(number))


def test_the_rule_is_that_of_the_level_that_was_played() -> None:
    config = parse_config(
        {
            "env": {"id": "story-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": "m"}},
            "judge": {"by": "rule", "against": "score"},
        }
    )
    now = [level(1.0)]
    judges = Judges(config, lambda: now[0], lambda _: None, None)  # type: ignore[arg-type]

    def judged(env: Any = None) -> float:
        step = Step(None, (), Rewards(), exhibits={"author": Exhibit("Q", "A")})
        episode = Episode("t/0", "story-v1", Task("t"), 0, [], [step], last=0)
        asyncio.run(judges.judge([episode], Played([], 0, env=env), by_score=False))
        return step.rewards.agent["author"].value

    assert judged() == 1.0
    now[0] = level(2.0)
    assert judged() == 2.0, "a curriculum went on"
    assert judged(level(3.0)) == 3.0, "tests are on the last level"
    assert judged() == 2.0
