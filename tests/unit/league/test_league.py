"""Assignments of a step: shares, players, and the same again after a checkpoint."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("openskill")

from plays import linear, rewards

from pettingllms.config import LeagueConfig, RewardConfig
from pettingllms.league import League, Snapshot, duel, rotated, rotations
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Task

ROLES = ("a", "b")


def league_of(num_snapshots: int = 3, roles: tuple[str, ...] = ROLES, **options: Any) -> League:
    league = League(LeagueConfig(**{"snapshot_every": 10, **options}), "p", roles, seed=7)
    for number in range(num_snapshots):
        league.add_snapshot(Snapshot("p", 10 * number, number))
    return league


def tasks_of(step: int, number: int) -> list[Task]:
    return [Task(f"{step}-{at}") for at in range(number)]


def played(league: League, step: int, number: int) -> list[dict[str, str]]:
    """Play a step: who wins follows from the names, the players and the step."""
    tasks = tasks_of(step, number)
    assignments = league.assignments(step, tasks)
    episodes: list[Episode] = []
    for task in tasks:
        assignment = assignments.get(task.id, dict.fromkeys(league.roles, "p"))
        agent_rewards = {
            role: derive_seed(step, name, role) % 3 for role, name in assignment.items()
        }
        episodes.append(linear(task.id, 0, (league.roles[0], rewards(agent=agent_rewards))))
    league.record(tasks, assignments, episodes, RewardConfig())
    return [dict(assignments[task.id]) for task in tasks if task.id in assignments]


@given(st.integers(1, 9), st.sampled_from([2, 3, 5]), st.sampled_from([0.3, 0.5, 1.0]))
@settings(deadline=None, max_examples=30)
def test_the_learner_plays_each_role_equally_often(number: int, players: int, share: float) -> None:
    roles = tuple("abcde"[:players])
    league = league_of(roles=roles, share=share, anchors=[])
    counts = Counter(dict.fromkeys(roles, 0))
    for step in range(1, 20):
        for assignment in played(league, step, number):
            (player,) = [role for role, name in assignment.items() if name == "p"]
            counts[player] += 1
        assert max(counts.values()) - min(counts.values()) <= 1


def test_against_each_kind_of_opponent_too() -> None:
    league = league_of(share=0.5, anchors=["minimax", "random"], anchor_share=0.25)
    players: Counter[tuple[str, str]] = Counter()
    for step in range(1, 33):
        for assignment in played(league, step, 16):
            (opponent,) = set(assignment.values()) - {"p"}
            player = next(role for role, name in assignment.items() if name == "p")
            players[opponent, player] += 1
    for opponent in ("script:minimax", "script:random"):
        assert players[opponent, "a"] == players[opponent, "b"] == 32
    for opponent in ("p@0", "p@10", "p@20"):
        assert players[opponent, "a"] == players[opponent, "b"] > 0


def test_shares_are_kept_over_small_steps() -> None:
    league = league_of(
        share=0.3, anchors=["minimax"], anchor_share=0.2, exploiters=["hunter"], exploiter_share=0.1
    )
    for step in range(1, 201):
        played(league, step, 1)
    assert league.counts == {"snapshots": 60, "anchors": 40, "exploiters": 20, "self": 80}


def test_what_shares_leave_over_is_self_play() -> None:
    league = league_of(share=0.5)
    assignments = league.assignments(1, tasks_of(1, 8))
    assert len(assignments) == 4
    assert not league_of(share=0.0).assignments(1, tasks_of(1, 8))


def test_opponents_of_a_step_follow_from_seed_and_step() -> None:
    league = league_of(20, rule="uniform", share=1.0)
    first = league.assignments(5, tasks_of(5, 8))
    assert first == league.assignments(5, tasks_of(5, 8)), "looking changes nothing"
    names = [{n for assignment in league.assignments(s, tasks_of(s, 8)).values() for n in
    assignment.values()}
             for s in range(1, 9)]  # fmt: skip
    assert all(len(some - {"p"}) <= 4 for some in names), "no more than num_opponents"
    assert len({frozenset(some) for some in names}) > 1, "steps differ"
    league.seed = 8
    assert first != league.assignments(5, tasks_of(5, 8))


@pytest.mark.parametrize("rule", ["latest", "uniform", "prioritised"])
@pytest.mark.parametrize("cut", [1, 7, 19])
def test_a_league_that_was_saved_goes_on_as_if_it_had_not_been(rule: str, cut: int) -> None:
    options = {"rule": rule, "share": 0.6, "anchors": ["minimax"], "max_snapshots": 4}

    def go(league: League, steps: range) -> list[Any]:
        met = []
        for step in steps:
            met.append(played(league, step, 5))
            if league.is_due(step):
                league.add_snapshot(Snapshot("p", step, step, f"mark{step}"))
        return met

    def begin() -> League:
        config = LeagueConfig(snapshot_every=3, **options)
        league = League(config, "p", ROLES, seed=7)
        league.add_snapshot(Snapshot("p", 0, 0, "mark0"))
        return league

    whole = begin()
    met = go(whole, range(1, 31))
    first = begin()
    before = go(first, range(1, cut + 1))
    saved = json.loads(json.dumps(first.state_dict()))
    second = begin()
    second.load_state_dict(saved)
    assert before + go(second, range(cut + 1, 31)) == met
    assert second.state_dict() == whole.state_dict(), "pool, matrix, ratings and counts, bit by bit"
    assert whole.payoff.rows
    assert len(whole.pool) == 4


def test_a_snapshot_takes_the_learners_games_and_rating() -> None:
    league = league_of(1, share=1.0)
    played(league, 1, 6)
    rating, games = league.ratings.of("p"), league.payoff.total("p").num_games
    assert games == 6
    league.add_snapshot(Snapshot("p", 10, 1))
    assert league.ratings.of("p@10") == rating
    assert league.payoff.total("p@10").num_games == 6
    assert league.payoff.total("p").num_games == 0


def test_exploiters_meet_the_learner_alone_and_their_snapshots_join_the_pool() -> None:
    league = league_of(0, exploiters=["hunter"], exploiter_share=0.5, share=0.5)
    for policy in league.members:
        league.add_snapshot(Snapshot(policy, 0, 0))
    met = [
        set(assignment.values()) for step in range(1, 9) for assignment in played(league, step, 8)
    ]
    assert {frozenset(some) for some in met} == {
        frozenset({"p", "hunter"}), frozenset({"p", "p@0"}), frozenset({"p", "hunter@0"})
    }  # fmt: skip
    assert met.count({"p", "hunter"}) == 32


def test_scores_are_told_by_opponent() -> None:
    league = league_of(1, share=0.5, anchors=["minimax"], anchor_share=0.5)
    tasks = tasks_of(1, 4)
    assignments = league.assignments(1, tasks)
    episodes = []
    for task in tasks:
        wins = "p" if "p@0" in assignments[task.id].values() else "script:minimax"
        agent_rewards = {role: float(name == wins) for role, name in assignments[task.id].items()}
        episodes.append(linear(task.id, 0, ("a", rewards(agent=agent_rewards))))
    scores = league.record(tasks, assignments, episodes, RewardConfig())
    assert scores == {"score_snapshots": 1.0, "score_minimax": 0.0}
    assert league.metrics()["size"] == 1.0


def test_every_player_moves_on_by_one_role() -> None:
    roles = {"a": "p", "b": "x", "c": "y"}
    assert rotated(roles, 0) == roles
    assert rotated(roles, 1) == {"a": "y", "b": "p", "c": "x"}
    assert rotated(roles, 3) == roles
    found = rotations(roles, tasks_of(1, 9), first=4)
    for role in roles:
        assert Counter(assignment[role] for assignment in found.values()) == {
            "p": 3,
            "x": 3,
            "y": 3,
        }
    assert found["1-0"] == rotated(roles, 4)


def test_a_duel_has_the_player_in_one_role() -> None:
    assert duel(("a", "b", "c"), "p", "x", 4) == {"a": "x", "b": "p", "c": "x"}
