"""What an answer in a debate is worth: signs in words, values by hand."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.algos.debate import DebateConfig
from pettingllms.algos.shaping import following, leading, majority, shaped_score

near = pytest.approx

PRICES = DebateConfig(
    gamma=0.5, right_at=0.5, follow_right=0.1, follow_wrong=0.2, lead_right=0.3, lead_wrong=0.4
)
SCORES_ALONE = DebateConfig(
    gamma=0.5, right_at=0.5, follow_right=0, follow_wrong=0, lead_right=0, lead_wrong=0
)
DEFAULTS = DebateConfig()

ROLES = "abcd"
scores = st.floats(0, 1).map(lambda x: round(x, 3))
full_rounds = st.lists(st.fixed_dictionaries(dict.fromkeys(ROLES, scores)), min_size=1, max_size=4)
rounds_with_gaps = st.lists(
    st.dictionaries(st.sampled_from(ROLES), st.none() | scores), min_size=1, max_size=4
)
prices = st.builds(
    DebateConfig,
    gamma=st.floats(0, 1),
    right_at=st.floats(0, 1),
    follow_right=st.floats(0, 2),
    follow_wrong=st.floats(0, 2),
    lead_right=st.floats(0, 2),
    lead_wrong=st.floats(0, 2),
)


def all_worth(rounds, priced):
    """What every answer of a debate is worth."""
    return {
        (at, role): shaped_score(rounds, role, at, priced)
        for at, a_round in enumerate(rounds)
        for role in a_round
    }


def test_an_answer_is_worth_its_score_and_a_share_of_what_everyone_scores_later() -> None:
    rounds = [{"a": 0.8, "b": 0.1}, {"a": 0.2, "b": 0.4}, {"a": 1.0, "b": 0.0}]
    assert all_worth(rounds, SCORES_ALONE) == {
        (0, "a"): near(0.8 + 0.5 * 0.3 + 0.25 * 0.5),
        (0, "b"): near(0.1 + 0.5 * 0.3 + 0.25 * 0.5),
        (1, "a"): near(0.2 + 0.5 * 0.5),
        (1, "b"): near(0.4 + 0.5 * 0.5),
        (2, "a"): 1.0,
        (2, "b"): 0.0,
    }


def test_all_parts_add_up() -> None:
    """b is wrong alone, then follows two that are right, and so was led by both."""
    rounds = [{"a": 1.0, "b": 0.0, "c": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}]
    assert all_worth(rounds, PRICES) == {
        (0, "a"): near(1 + 0.5 + 0.3 / 2),
        (0, "b"): near(0 + 0.5),
        (0, "c"): near(1 + 0.5 + 0.3 / 2),
        (1, "a"): 1.0,
        (1, "b"): near(1 + 0.1),
        (1, "c"): 1.0,
    }


def test_leading_others_to_the_right_answer_is_rewarded() -> None:
    one = [{"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 1.0, "b": 1.0, "c": 0.0}]
    both = [{"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 1.0, "b": 1.0, "c": 1.0}]
    assert leading(one, "a", 0, PRICES) == near(0.3 / 2)
    assert leading(both, "a", 0, PRICES) == near(0.3)


def test_leading_others_to_a_wrong_answer_costs() -> None:
    rounds = [{"a": 0.0, "b": 1.0, "c": 1.0}, {"a": 0.0, "b": 0.0, "c": 1.0}]
    assert leading(rounds, "a", 0, PRICES) == near(-0.4 / 2)


def test_who_did_not_move_was_not_led() -> None:
    rounds = [{"a": 1.0, "b": 1.0, "c": 0.0}, {"a": 0.0, "b": 1.0, "c": 0.0}]
    assert leading(rounds, "a", 0, PRICES) == 0
    assert leading(rounds, "a", 1, PRICES) == 0


def test_who_moved_away_from_my_answer_was_not_led_by_it() -> None:
    rounds = [{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 0.0}]
    assert leading(rounds, "a", 0, PRICES) == 0
    rounds = [{"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]
    assert leading(rounds, "a", 0, PRICES) == 0


def test_a_role_that_changes_only_its_own_answer_leads_no_other() -> None:
    rounds = [{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 0.0}]
    assert [leading(rounds, "a", at, PRICES) for at in range(3)] == [0, 0, 0]


def test_following_a_right_majority_is_rewarded() -> None:
    rounds = [{"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0}]
    assert following(rounds, "a", 1, PRICES) == 0.1
    assert following(rounds, "d", 1, PRICES) == 0


def test_following_a_wrong_majority_costs() -> None:
    rounds = [{"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 0.0, "b": 0.0, "c": 0.0}]
    assert following(rounds, "a", 1, PRICES) == -0.2


def test_standing_up_to_a_wrong_majority_costs_nothing() -> None:
    rounds = [{"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 1.0, "b": 0.0, "c": 0.0}]
    assert following(rounds, "a", 1, PRICES) == 0


def test_finding_the_right_answer_against_the_majority_is_not_following() -> None:
    rounds = [{"a": 0.0, "b": 0.0, "c": 0.0}, {"a": 1.0, "b": 0.0, "c": 0.0}]
    assert following(rounds, "a", 1, PRICES) == 0


def test_leaving_a_right_majority_costs_only_the_score() -> None:
    rounds = [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 0.0, "b": 1.0, "c": 1.0}]
    assert following(rounds, "a", 1, PRICES) == 0


def test_a_role_that_had_no_answer_is_rewarded_for_following_and_not_fined_for_it() -> None:
    heard = {"a": None, "b": 1.0, "c": 1.0}
    assert following([heard, {"a": 1.0}], "a", 1, PRICES) == 0.1
    heard = {"a": None, "b": 0.0, "c": 0.0}
    assert following([heard, {"a": 0.0}], "a", 1, PRICES) == 0


AGAINST = DebateConfig(against_majority=0.25, lead_opposite=0.5)


def test_becoming_right_against_a_wrong_majority_is_rewarded_and_the_opposite_costs() -> None:
    """Published as alpha_0."""
    rounds = [{"a": 0.0, "b": 0.0, "c": 0.0}, {"a": 1.0, "b": 0.0, "c": 0.0}]
    assert following(rounds, "a", 1, AGAINST) == 0.25
    rounds = [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 0.0, "b": 1.0, "c": 1.0}]
    assert following(rounds, "a", 1, AGAINST) == -0.25
    tie = [{"a": 0.0, "b": 0.0, "c": 1.0}, {"a": 1.0, "b": 0.0, "c": 1.0}]
    assert following(tie, "a", 1, AGAINST) == 0
    unheard = [{"a": None, "b": 0.0, "c": 0.0}, {"a": 1.0}]
    assert following(unheard, "a", 1, AGAINST) == 0


def test_a_wrong_answer_before_others_become_right_is_rewarded_and_the_opposite_costs() -> None:
    """Published as beta_0."""
    rounds = [{"a": 0.0, "b": 0.0, "c": 0.0}, {"a": 0.0, "b": 1.0, "c": 0.0}]
    assert leading(rounds, "a", 0, AGAINST) == 0.5 / 2
    rounds = [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": 0.0, "c": 0.0}]
    assert leading(rounds, "a", 0, AGAINST) == -0.5
    both = [{"a": 0.0, "b": 0.0, "c": 1.0}, {"a": 0.0, "b": 1.0, "c": 0.0}]
    assert leading(both, "a", 0, AGAINST) == near(0.5 / 2 - 0.1 / 2)


def test_alpha_scales_bonuses_and_leaves_scores_alone() -> None:
    rounds = [{"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1.0}]
    scaled = DebateConfig(gamma=0.5, alpha=2.0, follow_right=0.1, lead_right=0.3)
    assert all_worth(rounds, scaled) == {
        (0, "a"): near(1 + 0.5 + 2 * 0.3),
        (0, "b"): near(0 + 0.5),
        (1, "a"): 1.0,
        (1, "b"): near(1 + 2 * 0.1),
    }
    off = DebateConfig(gamma=0.5, alpha=0.0, follow_right=0.1, lead_right=0.3)
    assert all_worth(rounds, off) == all_worth(rounds, SCORES_ALONE)


def test_no_role_follows_in_the_first_round_or_leads_in_the_last() -> None:
    rounds = [{"a": 1.0, "b": 0.0}]
    assert following(rounds, "a", 0, PRICES) == leading(rounds, "a", 0, PRICES) == 0


def test_only_the_round_just_before_is_followed() -> None:
    rounds = [{"a": 0.0, "b": 1.0}, {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 0.0}]
    assert following(rounds, "a", 2, PRICES) == 0


def test_a_tie_has_no_majority() -> None:
    assert majority({"a": 0.0, "b": 1.0, "c": 0.0}, "a", 0.5) is None
    assert majority({"a": 0.0}, "a", 0.5) is None
    for before, now in ((0.0, 1.0), (1.0, 0.0)):
        rounds = [{"a": before, "b": 1.0, "c": 0.0}, {"a": now, "b": 1.0, "c": 0.0}]
        assert following(rounds, "a", 1, PRICES) == 0


def test_a_role_has_no_vote_in_the_majority_that_it_follows() -> None:
    heard = {"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.0}
    assert majority(heard, "a", 0.5) is True
    assert majority(heard, "b", 0.5) is False


def test_of_two_roles_each_is_the_others_majority() -> None:
    rounds = [{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]
    assert following(rounds, "a", 1, PRICES) == -0.2
    assert following(rounds, "b", 1, PRICES) == 0.1


def test_a_score_is_right_from_right_at_on() -> None:
    rounds = [{"a": 0.49, "b": 0.5}, {"a": 0.5, "b": 0.5}]
    assert following(rounds, "a", 1, PRICES) == 0.1
    assert leading(rounds, "b", 0, PRICES) == 0.3


def test_a_role_without_followers_is_rewarded_for_its_own_answers_only() -> None:
    """The others stay wrong: what is left of the means is the role's own share of them."""
    alone = {"a": 1.0, "b": 0.0, "c": 0.0}
    rounds = [alone, alone, alone]
    assert shaped_score(rounds, "a", 0, PRICES) == near(1 + 0.5 / 3 + 0.25 / 3)
    assert shaped_score(rounds, "a", 1, PRICES) == near(1 + 0.5 / 3)
    assert shaped_score(rounds, "a", 2, PRICES) == 1


def test_a_failed_score_is_in_no_majority_and_in_no_mean() -> None:
    assert majority({"a": 0.0, "b": 1.0}, "a", 0.5) is True
    rounds = [{"a": 0.0, "b": 0.0, "c": 1.0}, {"a": 1.0, "c": 0.6}]
    assert shaped_score(rounds, "b", 0, SCORES_ALONE) == near(0.5 * 0.8)
    assert leading(rounds, "c", 0, PRICES) == near(0.3)


def test_nothing_follows_from_a_round_in_which_the_roles_own_score_failed() -> None:
    rounds = [{"b": 1.0, "c": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}]
    assert following(rounds, "a", 1, PRICES) == 0


def test_a_role_without_an_answer_neither_leads_nor_follows_but_shares_later_scores() -> None:
    rounds = [{"a": 1.0, "b": 0.0}, {"a": None, "b": 0.0}, {"a": 1.0, "b": 1.0}]
    assert shaped_score(rounds, "a", 1, PRICES) == near(0.5)


def test_without_any_score_there_is_no_number() -> None:
    rounds = [{"a": None, "b": 1.0}, {"a": None}]
    assert shaped_score(rounds, "a", 0, PRICES) is None
    assert shaped_score(rounds, "a", 1, PRICES) is None


@given(rounds=rounds_with_gaps)
def test_without_a_future_and_without_prices_an_answer_is_worth_its_own_score_alone(rounds) -> None:
    priced = DebateConfig(
        gamma=0, right_at=0.5, follow_right=0, follow_wrong=0, lead_right=0, lead_wrong=0
    )
    assert all_worth(rounds, priced) == {
        (at, role): score for at, a_round in enumerate(rounds) for role, score in a_round.items()
    }


@given(rounds=rounds_with_gaps, priced=prices, chance=st.integers(0, 2**32))
def test_other_names_for_the_roles_are_the_same_rewards_under_other_names(
    rounds, priced, chance: int
) -> None:
    dice = random.Random(chance)
    names = dict(zip(ROLES, dice.sample(ROLES, len(ROLES)), strict=True))
    renamed = [{names[role]: a_round[role] for role in sorted(a_round)} for a_round in rounds]
    expected = {(at, names[role]): worth for (at, role), worth in all_worth(rounds, priced).items()}
    assert all_worth(renamed, priced) == expected


@given(rounds=full_rounds, priced=prices)
def test_rewards_are_bounded_however_many_roles_there_are(rounds, priced) -> None:
    for (at, role), worth in all_worth(rounds, priced).items():
        later = math.fsum(priced.gamma**ahead for ahead in range(1, len(rounds) - at))
        if rounds[at][role] >= priced.right_at:
            low, high = priced.right_at, 1 + later + priced.follow_right + priced.lead_right
        else:
            low, high = -priced.follow_wrong - priced.lead_wrong, priced.right_at + later
        assert low - 1e-9 <= worth <= high + 1e-9


@given(rounds=full_rounds, chance=st.integers(0, 2**32))
def test_by_default_right_answers_earn_more_over_an_episode_than_wrong_ones(
    rounds, chance: int
) -> None:
    """No role gains by being wrong first and then following a right majority."""
    at = random.Random(chance).randrange(len(rounds))
    totals = []
    for score in (0.0, 1.0):
        rounds[at] = {**rounds[at], "a": score}
        worth = all_worth(rounds, DEFAULTS)
        totals.append(math.fsum(worth[k, "a"] for k in range(len(rounds))))
    assert totals[1] > totals[0]
