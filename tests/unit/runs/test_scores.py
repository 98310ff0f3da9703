import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plays import LOST, linear, rewards

from pettingllms.config import RewardConfig
from pettingllms.runs.scores import RoleScore, pass_values, score, wilson
from pettingllms.types import Episode, Task


def play(task: str, number: int, reached: bool | None, role: str = "solver") -> Episode:
    success = {} if reached is None else {role: reached}
    failure = LOST if reached is None else None
    return Episode(f"{task}/{number}", "hand-v1", Task(task), 0, success=success, failure=failure)


def outcomes(*tasks: Sequence[bool | None], num_samples: int) -> RoleScore:
    """The score of tasks given by their plays; None is a play that failed."""
    ids = [f"t{at}" for at in range(len(tasks))]
    episodes = [
        play(name, number, reached)
        for name, plays in zip(ids, tasks, strict=True)
        for number, reached in enumerate(plays)
    ]
    return score(episodes, ids, num_samples, ["solver"])["solver"]


def test_by_hand() -> None:
    result = outcomes(
        [True, True, False, False], [False] * 4, [True, False, False, False], num_samples=4
    )
    assert result.avg.value == pytest.approx(3 / 12)
    assert result.pass_at[1] == result.avg
    assert result.pass_at[2].value == pytest.approx((5 / 6 + 0 + 3 / 6) / 3)
    assert result.pass_at[4].value == pytest.approx(2 / 3)
    assert (result.num_tasks, result.num_failed) == (3, 0)


@pytest.mark.parametrize(
    ("num_samples", "ks"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_k_doubles_up_to_the_number_of_samples(num_samples: int, ks: list[int]) -> None:
    assert list(pass_values(num_samples)) == ks


def test_a_play_that_failed_or_never_was_counts_as_not_reached() -> None:
    result = outcomes([True, None], [True], [], num_samples=2)
    assert result.avg.value == pytest.approx(2 / 6)
    assert result.pass_at[2].value == pytest.approx(2 / 3)
    assert (result.num_tasks, result.num_failed) == (3, 4)


def test_a_failure_outweighs_an_outcome() -> None:
    episode = play("t", 0, True)
    episode.failure = LOST
    assert score([episode], ["t"], 1, ["solver"])["solver"].avg.value == 0


@pytest.mark.parametrize("num_samples", [1, 4])
def test_nothing_reached_leaves_an_interval_open(num_samples: int) -> None:
    """By Wilson, 0 of 32 tasks: z² / (32 + z²), however often each was played."""
    result = outcomes(*[[False] * num_samples] * 32, num_samples=num_samples)
    for estimate in result.pass_at.values():
        assert (estimate.value, estimate.low) == (0, 0)
        assert estimate.high == pytest.approx(1.96**2 / (32 + 1.96**2), abs=1e-4)
    everything = outcomes(*[[True] * num_samples] * 32, num_samples=num_samples).avg
    assert (everything.value, everything.high) == (1, 1)
    assert everything.low == pytest.approx(1 - result.avg.high)


def test_one_success_among_many_leaves_more_open_than_resampling_would_say() -> None:
    result = outcomes([True, False], *[[False, False]] * 31, num_samples=2)
    nothing = outcomes(*[[False, False]] * 32, num_samples=2)
    assert result.avg.low > 0
    assert result.avg.high > nothing.avg.high


def test_a_plain_share_of_tasks_has_the_interval_of_a_share() -> None:
    result = outcomes(*[[at < 10] for at in range(32)], num_samples=1).avg
    assert (result.low, result.high) == wilson(10 / 32, 32)


def test_more_plays_of_the_same_tasks_are_not_more_tasks() -> None:
    """Where all plays of a task end alike, playing it eight times tells no more than once."""
    tasks = [at % 3 == 0 for at in range(60)]
    once = outcomes(*[[reached] for reached in tasks], num_samples=1).avg
    often = outcomes(*[[reached] * 8 for reached in tasks], num_samples=8).avg
    assert (once.low, once.high) == (often.low, often.high)


def test_the_bootstrap_agrees_with_the_normal_approximation() -> None:
    counts = [at % 5 for at in range(200)]
    result = outcomes(*[[at < count for at in range(4)] for count in counts], num_samples=4).avg
    half = 1.96 * np.std(np.array(counts) / 4) / np.sqrt(200)
    assert result.low == pytest.approx(0.5 - half, abs=0.005)
    assert result.high == pytest.approx(0.5 + half, abs=0.005)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Tasks of unlike difficulty: as if plays were independent, it would hold the truth 64%."""
    rng = np.random.default_rng(3)
    num_runs, num_tasks, num_samples = 150, 32, 8
    holds: dict[int, int] = {}
    for _ in range(num_runs):
        chances = rng.beta(0.5, 0.5, size=(num_tasks, 1))
        reached = rng.random((num_tasks, num_samples)) < chances
        result = outcomes(*reached.tolist(), num_samples=num_samples)
        for k, truth in ((1, 0.5), (2, 0.625)):  # E[1 - (1 - p)^k] for p of that distribution
            within = result.pass_at[k].low <= truth <= result.pass_at[k].high
            holds[k] = holds.get(k, 0) + within
    for num_held in holds.values():
        assert 0.89 <= num_held / num_runs <= 0.99


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=12))
def test_properties(tasks: list[list[bool]]) -> None:
    result = outcomes(*tasks, num_samples=3)
    assert result.avg.value == pytest.approx(np.mean(tasks))
    assert result.pass_at[1] == result.avg
    values = [result.pass_at[k].value for k in sorted(result.pass_at)]
    assert values == sorted(values)
    for estimate in result.pass_at.values():
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        assert estimate.low < estimate.high
    assert result == outcomes(*reversed(tasks), num_samples=3)


def test_roles_are_scored_apart_and_rewards_only_where_given() -> None:
    first = linear("a", 0, ("x", rewards(agent={"x": 1.0, "y": -1.0})))
    second = linear("b", 0, ("x", rewards(agent={"x": 0.5, "y": 2.0})))
    third = linear("c", 0, failure=LOST)
    first.success, second.success = {"x": True, "y": False}, {"x": True, "y": True}
    found = score([first, second, third], ["a", "b", "c"], 1, ["x", "y"], RewardConfig())
    assert found["x"].avg.value == pytest.approx(2 / 3)
    assert found["y"].avg.value == pytest.approx(1 / 3)
    assert found["x"].reward == 0.75
    assert found["y"].reward == 0.5
    assert found["x"].num_failed == 1
    assert score([], ["a"], 1, ["x"], RewardConfig())["x"].reward is None


@pytest.mark.parametrize(
    ("episodes", "task_ids", "words"),
    [
        ([play("a", 0, True), play("a", 1, True)], ["a"], "more than num_samples = 1"),
        ([play("b", 0, True)], ["a"], "'b/0' is of no task"),
        ([], ["a", "a"], "twice"),
        ([], [], "nothing to score"),
        ([play("a", 0, True, role="other")], ["a"], "'solver' has no outcome .* other"),
    ],
)
def test_what_cannot_be_scored(episodes: list[Episode], task_ids: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        score(episodes, task_ids, 1, ["solver"])


def test_a_play_given_twice_is_not_two_plays() -> None:
    with pytest.raises(ValueError, match="'a/0' occurs twice"):
        score([play("a", 0, True)] * 2, ["a"], 4, ["solver"])


def test_json() -> None:
    data = json.loads(json.dumps(outcomes([True, False], num_samples=2).to_json()))
    assert data["avg"] == data["pass_at"]["1"]
    assert set(data["avg"]) == {"value", "low", "high"}
    assert data["pass_at"]["2"]["value"] == 1
    assert (data["num_tasks"], data["num_failed"], data["reward"]) == (1, 0, None)


def test_wilson_by_hand() -> None:
    """8 of 10, as textbooks have it."""
    assert wilson(0.8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
