"""Each guard by itself: what trips it, when, and what it must not accuse."""

from typing import Any

import pytest
from plays import linear, overwrite, rewards

from pettingllms.config import RunConfig, parse_config
from pettingllms.runs.metrics import Metrics
from pettingllms.training.collapse import Guards, what_to_do

WELL = {
    "distinct_prompts": 40.0,
    "distinct_replies": 3.0,
    "sampler_entropy": 0.02,
    "repetition": 0.3,
}


def config_of(**guard: Any) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "toys:Relay"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": "m"}},
            "train": {"eval_every": 1},
            "guard": guard,
        }
    )


def step_of(success: float = 0.5, **numbers: float) -> Metrics:
    return {
        "roles": {role: {"success": success} for role in ("a", "b")},
        "policies": {"p": {**WELL, **numbers}},
        "rollout": {},
    }


def tripped(guards: Guards, *steps: Metrics) -> list[list[str]]:
    return [[sign.metric for sign in guards.see(step)] for step in steps]


@pytest.mark.parametrize(
    ("metric", "value"),
    [("distinct_replies", 1.0), ("sampler_entropy", 1e-5), ("repetition", 0.95)],
)
def test_a_bound_that_is_passed_for_long_enough_trips(metric: str, value: float) -> None:
    bad = step_of(**{metric: value})
    assert tripped(Guards(config_of(), {}), *[bad] * 5) == [[], [], [], [], [metric]]


def test_a_healthy_policy_is_never_accused() -> None:
    guards = Guards(config_of(anchors=["random"]), {})
    assert tripped(guards, *[step_of(anchor_random=0.8)] * 50) == [[]] * 50
    assert guards.is_well


def test_one_good_step_begins_the_count_anew() -> None:
    bad = step_of(distinct_replies=1.0)
    steps = [bad] * 4 + [step_of()] + [bad] * 4
    guards = Guards(config_of(), {})
    assert tripped(guards, *steps) == [[]] * 9
    assert not guards.is_well


def test_a_step_with_few_prompts_neither_counts_nor_clears() -> None:
    bad, few = step_of(distinct_replies=1.0), step_of(distinct_replies=1.0, distinct_prompts=7.0)
    found = tripped(Guards(config_of(), {}), *[bad] * 4, *[few] * 9, bad)
    assert found == [[]] * 13 + [["distinct_replies"]]


@pytest.mark.parametrize(("metric", "value"), [("distinct_replies", 1.0), ("sampler_entropy", 0.0)])
def test_one_reply_that_reaches_every_aim_is_no_collapse(metric: str, value: float) -> None:
    """A checker that accepts every plan of a planner that is always right."""
    won = step_of(success=0.95, **{metric: value})
    assert tripped(Guards(config_of(), {}), *[won] * 20) == [[]] * 20
    half = step_of(**{metric: value})
    half["roles"]["a"]["success"] = 1.0
    assert tripped(Guards(config_of(), {}), *[half] * 5)[-1] == [metric]


def test_what_is_remembered_goes_on_after_a_restart() -> None:
    bad = step_of(distinct_replies=1.0, anchor_random=0.9)
    first = Guards(config_of(anchors=["random"]), {})
    tripped(first, *[bad] * 3)
    again = Guards(config_of(anchors=["random"]), first.state())
    worse = step_of(distinct_replies=1.0, anchor_random=0.1)
    assert tripped(again, worse, worse) == [[], ["distinct_replies", "anchor_random"]]


def test_a_run_that_was_paused_is_judged_anew() -> None:
    bad = step_of(distinct_replies=1.0)
    guards = Guards(config_of(), {})
    tripped(guards, *[bad] * 5)
    assert tripped(Guards(config_of(), guards.state()), *[bad] * 4) == [[]] * 4


def test_falling_against_an_anchor_trips_where_self_play_shows_nothing() -> None:
    guards = Guards(config_of(anchors=["random"]), {})
    rates = [0.5, 0.9, 0.65, 0.5, None, 0.5]
    steps = [step_of() if r is None else step_of(anchor_random=r) for r in rates]
    assert tripped(guards, *steps) == [[], [], [], [], [], ["anchor_random"]]
    assert tripped(guards, *[step_of(anchor_random=0.5)] * 9) == [[]] * 9, "measured anew"


def test_off_sees_nothing() -> None:
    guards = Guards(config_of(action="off"), {})
    assert tripped(guards, *[step_of(distinct_replies=1.0)] * 20) == [[]] * 20
    assert not guards.is_well, "nobody knows, so no checkpoint is kept for it"


def test_the_message_says_what_was_seen_why_and_what_to_do() -> None:
    guards = Guards(config_of(patience=1), {})
    signs = guards.see(step_of(distinct_replies=1.0))
    episode = linear("t", 0, ("a", rewards()), ("b", rewards()))
    for turn in episode.turns:
        overwrite(turn, policy="p", text="\x1b[2J5" + "!" * 99)
    said = guards.describe(signs, [episode])
    assert "'p', 1 steps in a row: 1.000 different replies over 40 different prompts" in said
    assert "guard.min_replies = 1.05" in said
    assert "'\\x1b[2J5!!!" in said
    assert "…' (100%)" in said
    assert "says the same whatever it is shown" in said
    assert "lower policies.p.lr" in said
    assert "\x1b" not in said, "what a model wrote steers no terminal"
    assert "Most often it says nothing in this step" in guards.describe(signs, [])
    assert "resume runs/x --step 7`" in what_to_do("runs/x", 7)
    assert "step-000007" in what_to_do("runs/x", 7)
    assert "no good checkpoint" in what_to_do("runs/x", 0)
