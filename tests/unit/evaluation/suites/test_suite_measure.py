"""avg@k, pass@k and majority@k by hand, and what becomes of scores that failed."""

import pytest

from pettingllms.evaluation.suites.scoring import (
    EpisodeScore,
    measure,
    measured_from,
    pass_curve,
    score_episode,
    vote_curve,
)
from pettingllms.types import Episode, Failed, Task
from pettingllms.types.episodes import Step


def score(
    success: bool | None, answer: str | None = None, task: str = "t", failure: str = ""
) -> EpisodeScore:
    return EpisodeScore(
        task, success, answer, 10, 100, True, failure, f"{failure} broke" if failure else ""
    )


def test_pass_at_k_is_the_chance_that_k_plays_hold_one_that_is_right() -> None:
    scores = [score(True), score(False), score(False), score(False)]
    assert pass_curve(scores) == pytest.approx([0, 1 / 4, 1 / 2, 3 / 4, 1])


def test_the_commonest_answer_is_what_counts() -> None:
    scores = [score(False, "4"), score(False, "4"), score(True, "5")]
    votes = vote_curve(scores, [1, 2, 3])
    assert votes[1] == pytest.approx(1 / 3)
    assert votes[2] == pytest.approx(1 / 3), "4 and 5 tie in two of three pairs"
    assert votes[3] == 0


def test_a_play_without_an_answer_has_no_vote() -> None:
    scores = [score(True, "5"), score(False, None), score(False, None)]
    assert vote_curve(scores, [3])[3] == 1
    assert vote_curve([score(False), score(False)], [2])[2] == 0


def test_votes_over_many_sets_are_near_the_exact_ones() -> None:
    scores = [score(True, "5")] * 14 + [score(False, str(n)) for n in range(10)]
    drawn = vote_curve(scores, [5])[5]
    assert drawn > 0.75
    assert drawn == vote_curve(scores, [5])[5], "the same each time"


def test_a_failed_play_is_counted_apart_and_makes_a_lower_bound() -> None:
    scores = [score(True, "5"), score(None, failure="sampler")]
    found = measure("team", "r", scores, 2, 3.0)
    assert found.avg is not None
    assert found.avg.value == 0.5
    assert found.avg_completed == 1.0
    assert found.failed == {"sampler": 1}
    assert found.num_truncated == 0
    assert found.reasons == {"sampler broke": 1}


def test_where_every_play_failed_there_is_no_number() -> None:
    found = measure("team", "r", [score(None, failure="environment")] * 2, 2, 0.0)
    assert found.avg is None
    assert found.avg_completed is None
    assert found.pass_at == {}
    assert measured_from(found.to_json()) == found


def test_a_play_that_was_cut_is_the_subjects_own() -> None:
    found = measure("team", "r", [score(True), score(False, failure="limit")], 2, 0.0)
    assert (found.num_truncated, found.num_failed) == (1, 0)
    assert found.avg_completed == 0.5


def test_costs_are_those_of_one_play_and_everything_is_written() -> None:
    scores = [score(True, "5", task) for task in "ab" for _ in range(3)]
    found = measure("solo", "r", scores, 2, 12.0)
    assert (found.tokens, found.prompt_tokens, found.seconds) == (10, 100, 2.0)
    assert (found.num_tasks, found.num_samples, found.k) == (2, 3, 2)
    assert set(found.pass_at) == set(found.majority_at) == {1, 2, 3}
    assert measured_from(found.to_json()) == found


def test_no_majority_without_answers() -> None:
    assert measure("team", "r", [score(True)], 1, 0.0).majority_at == {}


def test_each_task_has_its_share_of_success_and_failures_count_as_none() -> None:
    scores = [score(True, task="a"), score(None, task="a", failure="sampler")]
    scores += [score(True, task="b"), score(False, task="b", failure="limit")]
    assert measure("team", "r", scores, 2, 0.0).tasks == {"a": 0.5, "b": 0.5}


def test_metrics_are_the_last_values_and_0_where_an_episode_did_not_end() -> None:
    def episode(*values: float, failure: Failed | None = None, limit: str = "") -> Episode:
        steps = [Step(None, (), metrics={"score": value}) for value in values]
        steps.append(Step(None, (), limit=limit, final=True))
        for at, step in enumerate(steps[1:]):
            step.parent = at
        task = Task("t", {})
        return Episode("e", "env", task, 0, steps=steps, last=len(values), failure=failure)

    def scored(one: Episode) -> EpisodeScore:
        return score_episode(one, "r", ["r"], False, ["score", "other"])

    ended, failed = episode(3.0, 7.0), episode(5.0, failure=Failed("broke", "sampler"))
    cut = episode(9.0, limit="200 steps")
    assert scored(ended).metrics == {"score": 7.0, "other": 0.0}
    assert scored(failed).metrics == scored(cut).metrics == {"score": 0.0, "other": 0.0}
    assert scored(cut).success is False
    assert scored(failed).success is None
    found = measure("team", "r", [scored(one) for one in (ended, cut)], 2, 0.0)
    assert found.metrics["score"].value == 3.5
    assert measured_from(found.to_json()) == found
