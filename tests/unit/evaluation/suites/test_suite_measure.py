"""avg@k, pass@k and majority@k by hand, and what becomes of plays that failed."""

import pytest

from pettingllms.evaluation.suites.scoring import (
    Play,
    measure,
    measured_from,
    pass_curve,
    vote_curve,
)


def play(
    reached: bool | None, answer: str | None = None, task: str = "t", failure: str = ""
) -> Play:
    return Play(
        task, reached, answer, 10, 100, True, failure, f"{failure} broke" if failure else ""
    )


def test_pass_at_k_is_the_chance_that_k_plays_hold_one_that_is_right() -> None:
    plays = [play(True), play(False), play(False), play(False)]
    assert pass_curve(plays) == pytest.approx([0, 1 / 4, 1 / 2, 3 / 4, 1])


def test_the_commonest_answer_is_what_counts() -> None:
    plays = [play(False, "4"), play(False, "4"), play(True, "5")]
    votes = vote_curve(plays, [1, 2, 3])
    assert votes[1] == pytest.approx(1 / 3)
    assert votes[2] == pytest.approx(1 / 3), "4 and 5 tie in two of three pairs"
    assert votes[3] == 0


def test_a_play_without_an_answer_has_no_vote() -> None:
    plays = [play(True, "5"), play(False, None), play(False, None)]
    assert vote_curve(plays, [3])[3] == 1
    assert vote_curve([play(False), play(False)], [2])[2] == 0


def test_votes_over_many_sets_are_near_the_exact_ones() -> None:
    plays = [play(True, "5")] * 14 + [play(False, str(n)) for n in range(10)]
    drawn = vote_curve(plays, [5])[5]
    assert drawn > 0.75
    assert drawn == vote_curve(plays, [5])[5], "the same each time"


def test_a_failed_play_is_counted_apart_and_makes_a_lower_bound() -> None:
    plays = [play(True, "5"), play(None, failure="sampler")]
    found = measure("team", "r", plays, 2, 3.0)
    assert found.avg is not None
    assert found.avg.value == 0.5
    assert found.avg_ended == 1.0
    assert found.failed == {"sampler": 1}
    assert found.num_cut == 0
    assert found.reasons == {"sampler broke": 1}


def test_where_every_play_failed_there_is_no_number() -> None:
    found = measure("team", "r", [play(None, failure="environment")] * 2, 2, 0.0)
    assert found.avg is None
    assert found.avg_ended is None
    assert found.pass_at == {}
    assert measured_from(found.to_json()) == found


def test_a_play_that_was_cut_is_the_subjects_own() -> None:
    found = measure("team", "r", [play(True), play(False, failure="limit")], 2, 0.0)
    assert (found.num_cut, found.num_failed) == (1, 0)
    assert found.avg_ended == 0.5


def test_costs_are_those_of_one_play_and_everything_is_written() -> None:
    plays = [play(True, "5", task) for task in "ab" for _ in range(3)]
    found = measure("solo", "r", plays, 2, 12.0)
    assert (found.tokens, found.prompt_tokens, found.seconds) == (10, 100, 2.0)
    assert (found.num_tasks, found.num_plays, found.k) == (2, 3, 2)
    assert set(found.pass_at) == set(found.majority_at) == {1, 2, 3}
    assert measured_from(found.to_json()) == found


def test_no_majority_without_answers() -> None:
    assert measure("team", "r", [play(True)], 1, 0.0).majority_at == {}
