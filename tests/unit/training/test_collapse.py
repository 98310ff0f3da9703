"""Each guard by itself: what trips it, when, and what it must not accuse."""

from pathlib import Path
from typing import Any

import pytest
from plays import linear, overwrite, rewards

from pettingllms.config import RunConfig, parse_config
from pettingllms.runs.metrics import Metrics
from pettingllms.training.collapse import CollapseGuard, how_to_continue
from pettingllms.training.compose import make_components

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


def guard_of(config: RunConfig, state: dict[str, Any] | None = None) -> CollapseGuard:
    guard = CollapseGuard(config.guard, config.roles, Path("runs/x"))
    guard.load_state_dict(state or {})
    return guard


def step_of(success: float = 0.5, **numbers: float) -> Metrics:
    return {
        "roles": {role: {"success": success} for role in ("a", "b")},
        "policies": {"p": {**WELL, **numbers}},
        "rollout": {},
    }


def tripped(guards: CollapseGuard, *steps: Metrics) -> list[list[str]]:
    return [[sign.metric for sign in guards.observe(step)] for step in steps]


@pytest.mark.parametrize(
    ("metric", "value"),
    [("distinct_replies", 1.0), ("sampler_entropy", 1e-5), ("repetition", 0.95)],
)
def test_a_bound_that_is_passed_for_long_enough_trips(metric: str, value: float) -> None:
    bad = step_of(**{metric: value})
    assert tripped(guard_of(config_of()), *[bad] * 5) == [[], [], [], [], [metric]]


def test_a_healthy_policy_is_never_accused() -> None:
    guards = guard_of(config_of(anchors=["random"]))
    assert tripped(guards, *[step_of(anchor_random=0.8)] * 50) == [[]] * 50
    assert guards.is_healthy


def test_one_good_step_begins_the_count_anew() -> None:
    bad = step_of(distinct_replies=1.0)
    steps = [bad] * 4 + [step_of()] + [bad] * 4
    guards = guard_of(config_of())
    assert tripped(guards, *steps) == [[]] * 9
    assert not guards.is_healthy


def test_a_step_with_few_prompts_neither_counts_nor_clears() -> None:
    bad, few = step_of(distinct_replies=1.0), step_of(distinct_replies=1.0, distinct_prompts=7.0)
    found = tripped(guard_of(config_of()), *[bad] * 4, *[few] * 9, bad)
    assert found == [[]] * 13 + [["distinct_replies"]]


@pytest.mark.parametrize(("metric", "value"), [("distinct_replies", 1.0), ("sampler_entropy", 0.0)])
def test_one_reply_that_reaches_every_aim_is_no_collapse(metric: str, value: float) -> None:
    """A checker that accepts every plan of a planner that is always right."""
    won = step_of(success=0.95, **{metric: value})
    assert tripped(guard_of(config_of()), *[won] * 20) == [[]] * 20
    half = step_of(**{metric: value})
    half["roles"]["a"]["success"] = 1.0
    assert tripped(guard_of(config_of()), *[half] * 5)[-1] == [metric]


def test_what_is_remembered_goes_on_after_a_restart() -> None:
    bad = step_of(distinct_replies=1.0, anchor_random=0.9)
    first = guard_of(config_of(anchors=["random"]))
    tripped(first, *[bad] * 3)
    again = guard_of(config_of(anchors=["random"]), first.state_dict())
    worse = step_of(distinct_replies=1.0, anchor_random=0.1)
    assert tripped(again, worse, worse) == [[], ["distinct_replies", "anchor_random"]]


def test_a_run_that_was_paused_is_judged_anew() -> None:
    bad = step_of(distinct_replies=1.0)
    guards = guard_of(config_of())
    tripped(guards, *[bad] * 5)
    assert tripped(guard_of(config_of(), guards.state_dict()), *[bad] * 4) == [[]] * 4


def test_falling_against_an_anchor_trips_where_self_play_shows_nothing() -> None:
    guards = guard_of(config_of(anchors=["random"]))
    rates = [0.5, 0.9, 0.65, 0.5, None, 0.5]
    steps = [step_of() if r is None else step_of(anchor_random=r) for r in rates]
    assert tripped(guards, *steps) == [[], [], [], [], [], ["anchor_random"]]
    assert tripped(guards, *[step_of(anchor_random=0.5)] * 9) == [[]] * 9, "measured anew"


def test_no_guard_is_composed_if_it_is_off() -> None:
    for action, expected in (("off", False), ("warn", True)):
        components = make_components(config_of(action=action), Path("runs/x"))
        assert ("guard" in [one.name for one in components]) is expected


def test_the_message_says_what_was_seen_why_and_how_to_continue() -> None:
    guards = guard_of(config_of(patience=1))
    signs = guards.observe(step_of(distinct_replies=1.0))
    episode = linear("t", 0, ("a", rewards()), ("b", rewards()))
    for turn in episode.turns:
        overwrite(turn, policy="p", text="\x1b[2J5" + "!" * 99)
    said = guards.describe(signs, [episode])
    assert "'p', 1 steps in a row: 1.000 different replies over 40 different prompts" in said
    assert "guard.min_replies = 1.05" in said
    assert "'\\x1b[2J5!!!" in said
    assert "…' (100%)" in said
    assert "gives the same reply to every prompt" in said
    assert "lower policies.p.lr" in said
    assert "\x1b" not in said, "what a model wrote steers no terminal"
    assert "Most frequent reply: none in this step" in guards.describe(signs, [])
    assert "resume runs/x --step 7`" in how_to_continue("runs/x", 7)
    assert "step-000007" in how_to_continue("runs/x", 7)
    assert "no good checkpoint" in how_to_continue("runs/x", 0)
