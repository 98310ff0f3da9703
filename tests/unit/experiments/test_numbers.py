"""Table numbers worked out by hand."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from plays import LOST, linear, overwrite, rewards

from pettingllms.config import parse_config
from pettingllms.errors import ExperimentError
from pettingllms.experiments.difference import difference, mean_over_seeds, student
from pettingllms.experiments.experiment import Evaluation, Experiment, Figure
from pettingllms.experiments.figure import spread
from pettingllms.experiments.results import Evaluated, Result, make_curve, to_json
from pettingllms.experiments.scoring import Measured, measure
from pettingllms.experiments.table import make_table

CONFIG = parse_config(
    {
        "env": {"id": "toys:Relay"},
        "algo": {"type": "grpo"},
        "policies": {"policy_a": {"kind": "full", "model": "m"}, "policy_b": {"kind": "scripted"}},
        "roles": {"a": "policy_a", "b": "policy_b"},
    }
)


def play(number: int, a: bool, b: bool, failed: bool = False, reward: float = 1.0):
    failure = LOST if failed else None
    episode = linear(
        f"t{number}", 0, ("a", rewards({"a": reward})), ("b", rewards(team=0.0)), failure=failure
    )
    episode.success = {} if failed else {"a": a, "b": b}
    return episode


def measured(value: float, num_tasks: int = 100) -> Measured:
    return Measured(value, num_tasks, num_tasks, 0, 1.0)


def test_a_metric_is_the_mean_of_what_plays_reported_last() -> None:
    plays = [play(n, True, True) for n in range(3)]
    for episode, found in zip(plays, ([0.0, 1.0], [0.5, None], [None, None]), strict=True):
        for at, value in zip(episode.main_branch(), found, strict=True):
            metrics = {} if value is None else {"right": value}
            episode.steps[at] = replace(episode.steps[at], metrics=metrics)
    assert measure(plays, {}, CONFIG, "a", "metric", "right").value == (1.0 + 0.5) / 2
    with pytest.raises(ExperimentError, match="no episode reported 'rihgt'; did you mean 'right'"):
        measure(plays, {}, CONFIG, "a", "metric", "rihgt")


def test_students_interval_of_three_numbers() -> None:
    """Mean 4, variance ((2-4)^2 + (4-4)^2 + (6-4)^2) / 2 = 4, error 2/sqrt(3), t(2) = 4.302653."""
    half = 4.302653 * 2 / math.sqrt(3)
    assert student([2.0, 4.0, 6.0]) == pytest.approx((4 - half, 4 + half))


def test_students_interval_of_two_numbers() -> None:
    """Mean 0, variance 2, error sqrt(2)/sqrt(2) = 1, t(1) = 12.706205."""
    assert student([-1.0, 1.0]) == pytest.approx((-12.706205, 12.706205))


def test_a_share_over_seeds_stays_between_nothing_and_all() -> None:
    found = mean_over_seeds([measured(v) for v in (0.9, 0.95, 1.0)], is_share=True)
    half = 4.302653 * 0.05 / math.sqrt(3)
    assert found.interval == "t"
    assert (found.value, found.low) == pytest.approx((0.95, 0.95 - half))
    assert found.high == 1.0


def test_one_seed_has_wilsons_interval() -> None:
    """81 of 263, worked out by hand: 0.308 with [0.255, 0.366] to three digits."""
    found = mean_over_seeds([measured(81 / 263, 263)], is_share=True)
    assert found.interval == "wilson"
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=2e-4)


def test_seeds_that_came_out_alike_have_wilsons_interval_of_all_their_games() -> None:
    """No scatter is no knowledge: of 300 games without a loss, up to z^2/(n + z^2) may be lost."""
    found = mean_over_seeds([measured(0.0)] * 3, is_share=True)
    assert (found.interval, found.low) == ("wilson", 0.0)
    assert found.high == pytest.approx(3.8415 / 303.8415, abs=1e-5)


def test_one_mean_reward_has_no_interval() -> None:
    found = mean_over_seeds([measured(0.3)], is_share=False)
    assert (found.low, found.high, found.interval) == (None, None, "none")


def test_success_and_loss_are_not_each_others_rest() -> None:
    """Two won, one lost, one drawn, one failed, which counts against the role both times."""
    plays = [play(0, True, False), play(1, True, False), play(2, False, True)]
    plays += [play(3, False, False), play(4, False, False, failed=True)]
    assert measure(plays, {}, CONFIG, "a", "success").value == 2 / 5
    assert measure(plays, {}, CONFIG, "a", "loss").value == 2 / 5
    assert measure(plays, {}, CONFIG, "b", "success").value == 1 / 5
    assert measure(plays, {}, CONFIG, "b", "loss").value == 3 / 5
    assert measure(plays, {}, CONFIG, "a", "loss").num_failed == 1


def test_a_majority_is_scored_per_task_and_costs_all_its_votes() -> None:
    """Of task 0, two of three votes are right; of task 1, two wrong ones agree; of task 2, one of
    three different answers is right, so the vote is right in a third of the draws."""
    plays = []
    for task, votes in enumerate(("772", "733", "123")):
        truth = "7" if task < 2 else "1"
        for vote in votes:
            episode = play(task, vote == truth, False)
            episode.answers = {"a": vote}
            plays.append(episode)
    found = measure(plays, {}, CONFIG, "a", "majority")
    assert found.values == pytest.approx([1.0, 0.0, 1 / 3])
    assert found.value == pytest.approx(4 / 9)
    assert found.tokens == 3 * measure(plays, {}, CONFIG, "a", "success").tokens > 0
    assert found.tasks == measure(plays, {}, CONFIG, "a", "success").tasks


def test_a_reward_is_the_mean_of_the_episodes_that_have_one() -> None:
    plays = [play(0, True, False, reward=1.0), play(1, True, False, reward=4.0)]
    plays.append(play(2, True, False, failed=True, reward=100.0))
    assert measure(plays, {}, CONFIG, "a", "reward").value == 2.5
    with pytest.raises(ExperimentError, match="no reward in any of 1 episodes"):
        measure(plays[2:], {}, CONFIG, "a", "reward")


def test_a_table_says_where_failed_plays_count() -> None:
    """The mean above leaves them out, so it must not say that they count against the arm."""
    columns = [{"name": "points", "measure": "reward"}]
    experiment = Experiment.model_validate(
        {
            "title": "T",
            "question": "Q?",
            "arms": [{"name": "A", "config": "a"}],
            "evaluations": columns,
        }
    )
    cell = Evaluated("reward of a", Measured(2.5, 3, 3, num_failed=1, tokens=1.0), 0.0)
    machine = {"cores": 1, "cpu": "x", "memory_gib": 1}
    result = Result("A", 1, "reproduce --seed 1", machine, {}, None, {"points": cell})
    page = make_table(experiment, [result])
    assert "| 2.500 |" in page
    assert "1 episodes failed. They count against the arm in success" in page
    assert "rewards and metrics are means over the other episodes" in page


def test_an_answer_costs_the_tokens_of_all_models_and_of_no_script() -> None:
    """Two tokens a reply, by hand; b is scripted."""
    plays = [play(0, True, False), play(1, True, False)]
    overwrite(plays[0].turns[0], response_ids=np.arange(8, dtype=np.int32))
    assert measure(plays, {}, CONFIG, "a", "success").tokens == (8 + 2) / 2


def test_plays_of_one_task_are_one_task() -> None:
    plays = [play(0, True, False), play(0, False, False)]
    found = measure(plays, {}, CONFIG, "a", "success")
    assert (found.num_tasks, found.num_episodes) == (1, 2)


def test_a_curve_skips_steps_without_the_metric_and_smooths_over_the_last_points() -> None:
    rows = [
        {"step": 1, "rollout/total_tokens": 10.0, "m": 1.0},
        {"step": 2, "rollout/total_tokens": 20.0},
        {"step": 3, "rollout/total_tokens": 30.0, "m": 3.0},
        {"step": 4, "rollout/total_tokens": 40.0, "m": 8.0},
    ]
    curve = make_curve(rows, "m", Figure(smooth=2))
    assert (curve.x, curve.y) == ([0, 20, 30], [1.0, 2.0, 5.5])
    assert make_curve(rows, "m", Figure(x="step")).x == [0, 2, 3]


@pytest.mark.parametrize(
    ("metric", "x"),
    [
        ("roles/a/reward", [0.0, 10.0]),
        ("roles/a/success", [0.0, 10.0]),
        ("roles/a/eval_success", [10.0, 20.0]),
        ("policies/p/nash_conv", [10.0, 20.0]),
        ("policies/p/anchor_random", [10.0, 20.0]),
    ],
)
def test_a_curve_begins_with_the_weights_before_training(metric: str, x: list[float]) -> None:
    """Rollouts of step 1 are played by them; evaluations are of the weights after a step."""
    rows = [{"step": n, "rollout/total_tokens": 10.0 * n, metric: 0.5} for n in (1, 2)]
    assert make_curve(rows, metric, Figure()).x == x


def test_labels_never_overlap_and_keep_their_order() -> None:
    wanted = {"a": 50.0, "b": 52.0, "c": 51.0, "d": 99.0, "e": 98.0, "f": 5.0}
    heights = {"a": 10.0, "b": 20.0, "c": 10.0, "d": 10.0, "e": 10.0, "f": 10.0}
    places = spread(wanted, heights, 0.0, 100.0)
    order = sorted(places, key=lambda name: places[name])
    assert order == ["f", "a", "c", "b", "e", "d"]
    for below, above in itertools.pairwise(order):
        gap = (places[above] - heights[above] / 2) - (places[below] + heights[below] / 2)
        assert gap >= -1e-9
    assert places["f"] == 5.0
    assert places["d"] == 95.0


def test_a_distance_is_that_of_the_roles_policy() -> None:
    exploitability = {CONFIG.roles["a"]: {"nash_conv": 0.25, "legal_share": 0.9}}
    plays = [play(0, True, False)]
    assert measure(plays, exploitability, CONFIG, "a", "nash_conv").value == 0.25
    with pytest.raises(ExperimentError, match="support regret; use one of legal_share, nash_conv"):
        measure(plays, exploitability, CONFIG, "a", "regret")


def results_of(values: dict[str, list[float]], **tasks: list[float | None]) -> list[Result]:
    """For each arm a result of every seed; `tasks`: for each arm the numbers of its test tasks."""
    return [
        Result(arm, seed, "reproduce --seed 1", MACHINE, {}, None, {"won": Evaluated("", cell, 0)})
        for arm, some in values.items()
        for seed, value in enumerate(some, start=1)
        for cell in [
            replace(measured(value), tasks="x" * (arm in tasks), values=tasks.get(arm, []))
        ]
    ]


MACHINE = {"cores": 1, "cpu": "x", "memory_gib": 1}
WON = Evaluation(name="won")


def test_a_difference_is_paired_by_seed() -> None:
    """Seeds differ by 30 points and arms by two: unpaired intervals overlap, paired ones do not."""
    results = results_of({"a": [0.50, 0.65, 0.80], "b": [0.52, 0.68, 0.81]})
    found = difference(results, "b", "a", WON)
    assert found is not None
    assert found.value == pytest.approx(0.02)
    half = 4.302653 * 0.01 / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((0.02 - half, 0.02 + half))
    assert (found.paired_by, found.num_pairs) == ("seeds", 3)
    unpaired = [mean_over_seeds([measured(v) for v in some], True) for some in ([0.5, 0.65, 0.8],)]
    assert unpaired[0].high - unpaired[0].low > 10 * (found.high - found.low)


def test_a_difference_is_over_the_seeds_that_both_arms_have() -> None:
    results = results_of({"a": [0.5, 0.6], "b": [0.7, 0.7, 0.0]})
    found = difference(results, "b", "a", WON)
    assert found is not None
    assert (found.value, found.num_pairs) == (pytest.approx(0.15), 2)
    assert difference(results, "b", "c", WON) is None


def test_with_one_seed_a_difference_is_paired_by_task() -> None:
    """Gaps 1, 0, 0, 1 of tasks that both have: mean 1/2, deviation sqrt(1/3), t(3) = 3.182446."""
    tasks = {"a": [0.0, 1.0, 0.0, 0.0, 1.0], "b": [1.0, 1.0, 0.0, 1.0, None]}
    found = difference(results_of({"a": [0.4], "b": [0.75]}, **tasks), "b", "a", WON)
    assert found is not None
    half = 3.182446 * math.sqrt(1 / 3) / 2
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert found.paired_by == "tasks"


def test_one_seed_without_numbers_of_tasks_has_a_difference_and_no_interval() -> None:
    found = difference(results_of({"a": [0.4], "b": [0.75]}), "b", "a", WON)
    assert found is not None
    assert (found.value, found.low, found.paired_by) == (pytest.approx(0.35), None, "none")


def test_a_table_has_the_differences_of_every_two_arms() -> None:
    arms = [{"name": name, "config": "c"} for name in "abc"]
    spec = {"title": "T", "question": "Q?", "arms": arms, "evaluations": [{"name": "won"}]}
    results = results_of({"a": [0.50, 0.60], "b": [0.52, 0.58], "c": [0.9, 0.9]})
    page = make_table(Experiment.model_validate(spec), results)
    assert "| b − a | +0.0 [−25.4, +25.4] |" in page
    assert "| c − a | +35.0 [" in page
    assert "| c − b | +35.0 [" in page
    assert "Student's t over seeds" in page


def test_numbers_of_tasks_are_kept_in_the_order_of_their_tasks() -> None:
    plays = [play(0, True, False), play(1, False, False), play(0, False, False)]
    found = measure(plays, {}, CONFIG, "a", "success")
    assert found.values == [0.5, 0.0]
    assert found.tasks == measure(plays[:2], {}, CONFIG, "b", "loss").tasks
    assert found.tasks != measure(plays[1:], {}, CONFIG, "a", "success").tasks
    failed = [play(0, True, False, reward=2.0), play(1, True, False, failed=True)]
    assert measure(failed, {}, CONFIG, "a", "reward").values == [2.0, None]


def test_results_of_version_0_1_are_read_with_the_new_names() -> None:
    measured = {"value": 0.5, "num_tasks": 2, "num_plays": 4, "num_failed": 0, "tokens": 1.0}
    old = {"asked": "reward of a", "measured": measured, "seconds": 1.0}
    data = {"arm": "in company", "seed": 1, "command": "", "machine": {}, "versions": {},
            "training": None, "evaluations": {"beside an author": old}}  # fmt: skip
    result = Result.from_json(data)
    assert result.arm == "with co-players"
    assert result.evaluations["with an author"].measured.num_episodes == 4
    assert result.evaluations["with an author"].spec == "reward of a"


def test_stored_numbers_have_a_line_per_list_and_not_per_number() -> None:
    numbers = {"values": [1.0, -2e-05, 3], "text": "[1, 2]", "low": [None, 0.5], "none": []}
    text = to_json({"results": [numbers]})
    assert json.loads(text) == {"results": [numbers]}
    assert '"values": [ 1.0, -2e-05, 3 ],' in text
