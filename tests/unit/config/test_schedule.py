"""Who learns in which step, by table and by property."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.config import RunConfig, TrainConfig, parse_config
from pettingllms.config.policies import FrozenPolicy, FullPolicy, LoraPolicy
from pettingllms.config.schedule import learning, schedule_problems
from pettingllms.errors import ConfigError


def policies(**join_steps: int) -> dict:
    made = {
        name: (FullPolicy if at % 2 else LoraPolicy)(model="m", join_step=first)
        for at, (name, first) in enumerate(join_steps.items())
    }
    return {**made, "still": FrozenPolicy(model="m")}


def who(joins: dict[str, int], steps: int, **train: object) -> str:
    """One word a step: the letters of those that learn in it."""
    config = TrainConfig(**train)
    found = (learning(policies(**joins), config, step) for step in range(1, steps + 1))
    return " ".join("".join(sorted(names)) or "-" for names in found)


@pytest.mark.parametrize(
    ("joins", "train", "expected"),
    [
        ({"a": 1, "b": 1}, {}, "ab ab ab ab ab ab"),
        ({"a": 1, "b": 4}, {}, "a a a ab ab ab"),
        ({"a": 3, "b": 4}, {}, "- - a ab ab ab"),
        ({"a": 1, "b": 1}, {"alternate": ["a", "b"], "alternate_every": 1}, "a b a b a b"),
        ({"a": 1, "b": 1}, {"alternate": ["b", "a"], "alternate_every": 2}, "b b a a b b"),
        ({"a": 1, "b": 1}, {"alternate": ["a", "b"]}, "a a a a a a"),
        ({"a": 1, "b": 1}, {"alternate": ["a", "a", "b"], "alternate_every": 1}, "a a b a a b"),
        ({"a": 1, "b": 3}, {"alternate": ["a", "b"], "alternate_every": 2}, "a a b b a a"),
        ({"a": 1, "b": 4}, {"alternate": ["a", "b"], "alternate_every": 2}, "a a - b a a"),
    ],
)
def test_who_learns(joins: dict[str, int], train: dict, expected: str) -> None:
    assert who(joins, 6, **train) == expected


def test_a_turn_lasts_ten_steps_if_nothing_is_said() -> None:
    assert who({"a": 1, "b": 1}, 21, alternate=["a", "b"]) == " ".join("a" * 10 + "b" * 10 + "a")


NAMES = ("a", "b", "c")


@given(st.permutations(NAMES), st.integers(1, 5), st.integers(0, 4))
def test_in_every_round_each_policy_learns_alone_and_equally_long(
    order: list[str], every: int, number: int
) -> None:
    train = TrainConfig(alternate=list(order), alternate_every=every)
    first = 1 + number * every * len(NAMES)
    steps = range(first, first + every * len(NAMES))
    found = [learning(policies(a=1, b=1, c=1), train, step) for step in steps]
    assert all(len(names) == 1 for names in found)
    assert Counter(name for (name,) in found) == dict.fromkeys(NAMES, every)


@given(st.lists(st.integers(1, 9), min_size=3, max_size=3), st.integers(1, 12))
def test_who_has_joined_stays(joins: list[int], step: int) -> None:
    made = policies(**dict(zip(NAMES, joins, strict=True)))
    now, after = (learning(made, TrainConfig(), at) for at in (step, step + 1))
    assert now <= after
    assert after - now == {n for n, first in zip(NAMES, joins, strict=True) if first == step + 1}


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=2),
    st.sampled_from([[], ["a", "b"], ["b", "a"], ["a", "b", "b"]]),
    st.integers(1, 4),
    st.integers(1, 60),
)
def test_a_run_is_refused_just_if_some_step_has_no_learner(
    joins: list[int], alternate: list[str], every: int, num_steps: int
) -> None:
    made = policies(a=joins[0], b=joins[1])
    train = TrainConfig(alternate=alternate, alternate_every=every, num_steps=num_steps)
    idle = any(not learning(made, train, step) for step in range(1, num_steps + 1))
    assert bool(list(schedule_problems(made, train))) == idle


LORA = {"kind": "lora", "model": "m"}


def run(train: dict, planner: dict = LORA, checker: dict = LORA) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"plan": planner, "check": checker},
            "roles": {"planner": "plan", "checker": "check"},
            "train": train,
        }
    )


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (
            {"train": {"alternate": ["plan", "checkr"]}},
            "train.alternate: no policy that learns is called 'checkr'; did you mean 'check'?",
        ),
        (
            {"train": {"alternate": ["plan", "check"]}, "checker": {"kind": "scripted"}},
            "train.alternate: no policy that learns is called 'check'; known: plan",
        ),
        (
            {"train": {"alternate": ["plan"]}},
            "train.alternate: check would never learn; name every full or lora policy",
        ),
        (
            {
                "train": {"alternate": ["plan", "check"], "alternate_every": 3},
                "checker": {**LORA, "join_step": 5},
            },
            "join_step: is 5, but train.alternate lets only 'check' learn in step 4; lower it",
        ),
        (
            {
                "train": {},
                "planner": {**LORA, "join_step": 3},
                "checker": {**LORA, "join_step": 2},
            },
            "policies.check.join_step: is 2, so no policy would learn in ",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_the_fix(given_: dict, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(**given_)
    (problem,) = caught.value.problems
    assert expected in problem


def test_a_team_that_never_learns_needs_no_schedule() -> None:
    config = run({}, {"kind": "scripted"}, {"kind": "frozen", "model": "m"})
    assert config.learning(1) == frozenset()
