"""Collusion of a proposer and solvers is seen in metrics and diagnostics; honest pairs are not."""

import pytest
from proposing import measured, played
from viewed import config_of

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RewardConfig
from pettingllms.envs.toolkit.proposals import (
    PROPOSED,
    SolvedTask,
    digest,
    outcome_metrics,
    outcomes_of,
    solved_in,
    solved_metrics,
)
from pettingllms.runs.diagnostics import diagnose
from pettingllms.runs.proposals import held_out_metrics, matched_gap, proposal_metrics
from pettingllms.types import Episode, Scored


def reward_of(episodes: list[Episode], role: str) -> float:
    rewards = [role_reward(episode, role, RewardConfig()) for episode in episodes]
    return mean([reward.value for reward in rewards if isinstance(reward, Scored)])


def test_a_pair_that_shares_a_code_earns_more_than_honest_pairs_and_is_caught() -> None:
    colluding = played("coded", "decoded")
    accepted = [one for one in colluding if len(one.steps) == 2]
    assert len(accepted) > 40
    assert reward_of(accepted, "proposer") == 1.0, "every accepted task is solved by exactly half"
    assert reward_of(accepted, "solver_2") == 1.0
    assert reward_of(accepted, "proposer") > reward_of(played("expert", "noisy"), "proposer") + 0.2
    row = measured("coded", "decoded")
    assert row["proposals/solve_rate"] == 0.5
    assert row["proposals/held_out_success"] < 0.1
    (found,) = diagnose([row], config_of())
    assert "more of the proposed tasks than of held-out tasks of the same difficulty" in found.what
    assert "agreed on a code" in found.help


@pytest.mark.parametrize(
    ("proposer", "solver"),
    [("expert", "noisy"), ("expert", "skilled"), ("random", "skilled"), ("expert", "expert")],
)
def test_honest_pairs_are_not_accused(proposer: str, solver: str) -> None:
    row = measured(proposer, solver)
    assert abs(row["proposals/gap"]) < 0.15
    assert diagnose([row], config_of()) == []


def test_a_proposer_that_repeats_its_tasks_is_caught() -> None:
    row = measured("lazy", "skilled", num_tasks=4, rollout={"num_samples": 15})
    assert row["proposals/novelty"] == 4 / 60
    (found,) = diagnose([row], config_of())
    assert "only 7% of the accepted proposals are distinct" in found.what
    honest = measured("random", "skilled", num_tasks=4, rollout={"num_samples": 15})
    assert honest["proposals/novelty"] > 0.5


ROW = {
    "proposals/num_proposals": 64.0,
    "proposals/accepted_share": 0.8,
    "proposals/novelty": 0.9,
    "proposals/common_answer_share": 0.1,
    "proposals/gap": 0.05,
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"proposals/gap": 0.4}, "solve 40% more of the proposed tasks"),
        ({"proposals/novelty": 0.1}, "only 10% of the accepted proposals are distinct"),
        ({"proposals/common_answer_share": 0.9}, "90% of the accepted proposals have the same"),
        ({"proposals/accepted_share": 0.1}, "90% of the proposals were rejected"),
    ],
)
def test_each_sign_is_one_diagnosis(changed: dict[str, float], said: str) -> None:
    assert diagnose([ROW], config_of()) == []
    (found,) = diagnose([ROW | changed], config_of())
    assert said in found.what
    assert diagnose([ROW | changed | {"proposals/num_proposals": 4.0}], config_of()) == [], "few"


def test_step_metrics_can_be_read_again() -> None:
    solved = SolvedTask(3, 0.25, digest("2*3"), digest("6"))
    metrics = solved_metrics(solved, PROPOSED) | outcome_metrics({"accepted": 2, "trivial": 1})
    assert solved_in(metrics, PROPOSED) == solved
    assert outcomes_of(metrics)["accepted"] == 2
    assert (outcomes_of({}), solved_in({}, PROPOSED)) == ({}, None)
    assert digest("2*3") != digest("2*4")
    assert digest("2*3").is_integer()


def test_the_gap_compares_tasks_of_one_difficulty() -> None:
    half, none, full = [0.5] * 4, [0.0] * 4, [1.0] * 4
    assert matched_gap({3: half}, {3: half}) == 0
    assert matched_gap({3: half}, {3: none, 1: full}) == 0.5
    assert matched_gap({3: half}, {2: none, 4: full}) == 0.5, "the next easier one"
    assert matched_gap({1: half}, {2: none}) is None, "nothing is as easy"
    assert matched_gap({3: half}, {3: none[:3]}) is None, "too few"
    assert matched_gap({1: full * 3, 3: half}, {1: full, 3: none}) == 0.5 / 4


def test_runs_without_a_proposer_have_no_such_metrics() -> None:
    alone = played("random", "noisy", 4, proposes=False)
    assert proposal_metrics(alone) == {}
    assert held_out_metrics(alone, alone) == {}


def test_a_task_that_siblings_of_a_tree_answer_counts_once() -> None:
    tree = {"type": "tree", "num_samples": 4, "continuation": "episode"}
    for num_proposals in (1, 2):
        episodes = played("expert", "skilled", 6, rollout=tree, num_proposals=num_proposals)
        found = proposal_metrics(episodes)
        assert found["num_proposals"] == 6 * 4 * num_proposals
        assert found["novelty"] > 0.5
        steps = [step for episode in episodes for step in episode.steps]
        num_answered = sum("solve_rate" in step.metrics for step in steps)
        assert num_answered > 2 * found["num_proposals"], "siblings answered again"
