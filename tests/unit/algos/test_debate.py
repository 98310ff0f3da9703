"""Debate: shaped scores on real episodes, compared within a role and a round."""

import math
from collections.abc import Mapping

import pytest
from plays import LOST, advantages, linear, rewards, turn
from pydantic import ValidationError

from pettingllms.algos import make_algorithm
from pettingllms.algos.debate import Debate, DebateConfig
from pettingllms.config import RewardConfig
from pettingllms.types import Episode, Failed, Group, Rewards, Scored, Step, Task

near = pytest.approx
HALF = math.sqrt(0.5)
NO_JUDGE = Failed("no judge", "judge")
OWN_SCORE_ALONE = {
    "gamma": 0.0,
    "follow_right": 0.0,
    "follow_wrong": 0.0,
    "lead_right": 0.0,
    "lead_wrong": 0.0,
}


def debate(number: int, *rounds: Mapping[str, float | Failed | None], **outcome: float) -> Episode:
    """An episode in which all roles answer at the same time; `team` is the reward at the end."""
    episode = Episode(f"t/{number}", "hand-v1", Task("t"), 0)
    for at, scores in enumerate(rounds):
        first = len(episode.turns)
        episode.turns += [turn(role, step=at, last=len(rounds) - 1) for role in scores]
        process = {
            role: score if isinstance(score, Failed) else Scored(score)
            for role, score in scores.items()
            if score is not None
        }
        team = Scored(outcome["team"]) if "team" in outcome and at == len(rounds) - 1 else None
        entered = tuple(range(first, len(episode.turns)))
        episode.steps.append(Step(at - 1 if at else None, entered, Rewards(process, team=team)))
    episode.last = len(rounds) - 1
    return episode


def by_key(groups: list[Group]) -> dict[tuple[object, ...], list[float]]:
    """The rewards of each group by role and round."""
    return {group.key[-2:]: [member.reward for member in group.members] for group in groups}


def test_a_role_is_compared_with_itself_in_the_same_round_of_the_other_plays() -> None:
    """In the second episode a's right answer persuades b; in the first no role is right."""
    plays = [
        debate(0, {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}),
        debate(1, {"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1.0}),
    ]
    algorithm = Debate(DebateConfig(gamma=0.5, follow_right=0.25, lead_right=0.125))
    groups = algorithm.assign(plays)
    assert by_key(groups) == {
        ("a", 0): [0, near(1 + 0.5 + 0.125)],
        ("b", 0): [0, near(0.5)],
        ("a", 1): [0, 1],
        ("b", 1): [0, near(1.25)],
    }
    assert advantages(plays[0]) == near([-HALF] * 4, rel=1e-5)
    assert advantages(plays[1]) == near([HALF] * 4, rel=1e-5)


def test_being_led_astray_is_worth_less_than_having_been_wrong_all_along() -> None:
    plays = [
        debate(0, {"a": 0.0, "b": 1.0, "c": 0.0}, {"a": 0.0, "b": 0.0, "c": 0.0}),
        debate(1, {"a": 0.0, "b": 0.0, "c": 0.0}, {"a": 0.0, "b": 0.0, "c": 0.0}),
    ]
    found = by_key(make_algorithm("debate", follow_wrong=0.5, lead_wrong=0.25).groups(plays))
    assert found["b", 1] == [-0.5, 0]
    assert found["a", 0] == found["c", 0] == [near(-0.125), 0]


def test_the_weight_of_process_scales_the_shaped_score_and_the_other_levels_are_added() -> None:
    plays = [
        debate(0, {"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1.0}, team=3.0),
        debate(1, {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}, team=1.0),
    ]
    options = DebateConfig(gamma=0.5, lead_right=0.25)
    found = by_key(Debate(options, RewardConfig(process=2.0, team=0.5)).groups(plays))
    assert found["a", 0] == [near(2 * (1 + 0.5 + 0.25) + 1.5), near(0.5)]
    found = by_key(Debate(options, RewardConfig(process=0.0)).groups(plays))
    assert found["a", 0] == [3, 1]


def test_a_failed_score_is_nobodys_and_its_turn_is_not_trained_on() -> None:
    plays = [
        debate(n, {"a": 0.0, "b": 0.0, "c": 1.0}, {"a": 1.0, "b": NO_JUDGE, "c": 0.6})
        for n in range(2)
    ]
    options = {**OWN_SCORE_ALONE, "gamma": 1.0}
    algorithm = make_algorithm("debate", **options)
    found = by_key(algorithm.assign(plays))
    assert ("b", 1) not in found
    assert found["b", 0] == [near(0.8)] * 2
    assert [advantages(play)[4] for play in plays] == [None, None]
    assert None not in advantages(plays[0])[:4]


def test_a_failed_score_votes_in_no_majority() -> None:
    """One is right and one is unknown: that is a majority, and no tie."""
    plays = [debate(n, {"a": 0.0, "b": NO_JUDGE, "c": 1.0}, {"a": 1.0}) for n in range(2)]
    found = by_key(make_algorithm("debate", follow_right=0.25).groups(plays))
    assert found["a", 1] == [1.25, 1.25]


def test_a_failed_turn_is_nobodys() -> None:
    plays = [debate(n, {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 0.0}) for n in range(2)]
    for play in plays:
        play.turns[3].credit.failure = LOST
    found = by_key(make_algorithm("debate", **{**OWN_SCORE_ALONE, "gamma": 1.0}).groups(plays))
    assert found == {("a", 0): [1, 1], ("b", 0): [1, 1], ("a", 1): [1, 1]}


def test_an_answer_that_was_not_scored_is_not_a_zero() -> None:
    plays = [debate(n, {"a": 1.0, "b": None}, {"a": 1.0, "b": None}) for n in range(2)]
    found = by_key(make_algorithm("debate", **{**OWN_SCORE_ALONE, "gamma": 0.5}).groups(plays))
    assert found == {("a", 0): [1.5, 1.5], ("b", 0): [0.5, 0.5], ("a", 1): [1, 1]}


def test_a_play_that_broke_off_is_in_no_group() -> None:
    whole = [debate(n, {"a": 1.0}, {"a": 0.0}) for n in range(2)]
    broken = debate(2, {"a": 0.0}, {"a": 1.0})
    broken.failure = LOST
    groups = make_algorithm("debate").assign([*whole, broken])
    assert [len(group.members) for group in groups] == [2, 2]
    assert advantages(broken) == [None, None]


def test_a_role_that_does_not_learn_is_heard_all_the_same() -> None:
    plays = [
        debate(0, {"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1.0}),
        debate(1, {"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 0.0}),
    ]
    learner = Debate(DebateConfig(gamma=1.0, lead_right=0.5), policies=frozenset({"policy_a"}))
    found = by_key(learner.groups(plays))
    assert found == {("a", 0): [1 + 1 + 0.5, 1 + 0.5], ("a", 1): [1, 1]}


def test_where_roles_speak_one_after_another_a_round_is_how_often_a_role_spoke() -> None:
    plays = [
        linear(
            "t",
            n,
            ("a", rewards(process={"a": 1.0})),
            ("b", rewards(process={"b": 0.0})),
            ("a", rewards(process={"a": 0.0})),
            ("b", rewards(process={"b": 1.0})),
        )
        for n in range(2)
    ]
    algorithm = make_algorithm("debate", gamma=0.5, lead_right=0.25, follow_right=0.125)
    found = by_key(algorithm.groups(plays))
    assert found["a", 0] == [near(1 + 0.5 * 0.5 + 0.25)] * 2
    assert found["b", 1] == [near(1 + 0.125)] * 2


def test_without_a_future_and_without_prices_only_the_own_score_counts() -> None:
    plays = [
        debate(0, {"a": 1.0, "b": 0.0}, {"a": 0.25, "b": 1.0}),
        debate(1, {"a": 0.0, "b": 1.0}, {"a": 0.75, "b": 0.0}),
    ]
    found = by_key(make_algorithm("debate", **OWN_SCORE_ALONE).groups(plays))
    assert found == {
        ("a", 0): [1, 0],
        ("b", 0): [0, 1],
        ("a", 1): [0.25, 0.75],
        ("b", 1): [1, 0],
    }


@pytest.mark.parametrize("price", ["follow_right", "follow_wrong", "lead_right", "lead_wrong"])
def test_the_sign_of_a_price_is_in_its_name(price: str) -> None:
    with pytest.raises(ValidationError, match=price):
        make_algorithm("debate", **{price: -0.1})
