"""Team against solo with the same tokens: by hand."""

import pytest

from pettingllms.evaluation.suites.scoring import EpisodeScore
from pettingllms.evaluation.suites.token_matched import compare, equal_from, num_samples_for


def scores(
    success: list[list[bool]], tokens: int, answers: bool = False, counted: bool = True
) -> list[EpisodeScore]:
    """For each task, the scores of it."""
    return [
        EpisodeScore(
            f"t{at}", right, ("yes" if right else "no") if answers else None, tokens, 0, counted
        )
        for at, task in enumerate(success)
        for right in task
    ]


def test_the_cheaper_form_plays_as_often_as_one_episode_of_the_dearer_allows() -> None:
    team = scores([[True], [False]], 30)
    solo = scores([[True, False, False], [False, True, False]], 10)
    found = compare(team, solo)
    assert found is not None
    assert found.budget == 30
    assert found.num_samples == {"team": 1.0, "solo": 3.0}
    pair = found.pairs["pass"]
    assert (pair.team.value, pair.solo.value, pair.difference.value) == (0.5, 1.0, -0.5)
    assert not found.is_short


def test_a_part_of_a_play_is_a_coin_toss_between_whole_ones() -> None:
    team = scores([[False, False]], 25)
    solo = scores([[True, False, False, False]], 10)
    found = compare(team, solo)
    assert found is not None
    assert found.num_samples["solo"] == 2.5
    assert found.pairs["pass"].solo.value == pytest.approx((2 / 4 + 3 / 4) / 2)


def test_a_team_that_is_cheaper_plays_on_too() -> None:
    found = compare(scores([[True, False]], 5), scores([[True]], 10))
    assert found is not None
    assert found.num_samples == {"team": 2.0, "solo": 1.0}
    assert found.pairs["pass"].difference.value == 0


def test_votes_are_compared_where_both_have_answers() -> None:
    team = scores([[True]], 30, answers=True)
    solo = scores([[True, False, False]], 10, answers=True)
    found = compare(team, solo)
    assert found is not None
    assert found.pairs["pass"].solo.value == 1.0
    assert found.pairs["majority"].solo.value == 0.0
    one_sided = compare(team, scores([[True, False, False]], 10))
    assert one_sided is not None
    assert set(one_sided.pairs) == {"pass"}


def test_too_few_plays_for_the_budget_are_said() -> None:
    found = compare(scores([[True]], 100), scores([[True, False]], 10))
    assert found is not None
    assert found.is_short
    assert equal_from(found.to_json()) == found


def test_nothing_is_compared_that_was_not_counted_alike() -> None:
    one = scores([[True]], 10)
    assert compare(one, scores([[True]], 0)) is None
    assert compare(one, scores([[True]], 10, counted=False)) is None


def test_an_interval_is_sure_only_where_many_tasks_agree() -> None:
    sure = compare(scores([[True]] * 40, 10), scores([[False]] * 40, 10))
    few = compare(scores([[True]] * 2, 10), scores([[False]] * 2, 10))
    mixed = compare(
        scores([[at % 2 == 0] for at in range(40)], 10),
        scores([[at % 3 == 0] for at in range(40)], 10),
    )
    assert sure is not None and few is not None and mixed is not None  # noqa: PT018
    assert sure.pairs["pass"].difference.low > 0.8
    assert few.pairs["pass"].difference.low < 0.5
    gain = mixed.pairs["pass"].difference
    assert gain.low < 0 < gain.value < gain.high


def test_drawing_tasks_again_keeps_the_budget() -> None:
    team = scores([[at < 10] for at in range(40)], 30)
    solo = scores([[at < 20, False, False] for at in range(40)], 10)
    found = compare(team, solo)
    assert found is not None
    gain = found.pairs["pass"].difference
    assert gain.value == -0.25
    assert -0.45 < gain.low < gain.high < -0.05


def test_both_forms_go_on_to_equal_tokens_but_not_past_the_cap() -> None:
    team, solo = scores([[True] * 2] * 3, 30), scores([[True] * 2] * 3, 10)
    assert num_samples_for(team, solo, 64) == (2, 6)
    assert num_samples_for(solo, team, 64) == (6, 2)
    assert num_samples_for(team, solo, 4) == (2, 4)
    assert num_samples_for(team, scores([[True] * 2], 0), 64) == (2, 2)
