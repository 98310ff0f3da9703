"""Strengths against a reference implementation, and what the prior and ties mean."""

import random

import numpy as np
import pytest

from pettingllms.judges.bradley_terry import Comparison, round_robin, strengths, swiss_round

choix = pytest.importorskip("choix")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("prior", [0.01, 0.1, 1.0])
def test_strengths_are_those_of_choix(seed: int, prior: float) -> None:
    rng = random.Random(seed)
    num = rng.randint(2, 9)
    games = [tuple(rng.sample(range(num), 2)) for _ in range(rng.randint(1, 40))]
    ours = strengths(num, [Comparison(one, other, 1.0) for one, other in games], prior)
    theirs = choix.opt_pairwise(num, games, alpha=prior, tol=1e-12)
    assert np.abs(ours.values - theirs).max() < 1e-6


def test_a_tie_is_half_a_win_each() -> None:
    mixed = [(0, 1, 1.0), (1, 2, 0.5), (0, 2, 0.5), (2, 3, 0.0)]
    ours = strengths(4, [Comparison(*game) for game in mixed], 0.1)
    twice = [(0, 1), (0, 1), (1, 2), (2, 1), (0, 2), (2, 0), (3, 2), (3, 2)]
    theirs = choix.opt_pairwise(4, twice, alpha=0.2, tol=1e-12)
    assert np.abs(ours.values - theirs).max() < 1e-6


def test_deviations_are_those_of_the_inverse_hessian_and_fall_with_games() -> None:
    from choix.opt import PairwiseFcts

    games = [(0, 1), (1, 2), (2, 0), (0, 1)]
    ours = strengths(3, [Comparison(one, other, 1.0) for one, other in games], 0.1)
    hessian = PairwiseFcts(games, 0.1).hessian(ours.values)
    assert np.abs(ours.deviations - np.sqrt(np.diag(np.linalg.inv(hessian)))).max() < 1e-6
    more = strengths(3, [Comparison(a, b, 1.0) for a, b in games * 10], 0.1)
    assert (more.deviations < ours.deviations).all()


def test_a_player_without_comparisons_is_in_the_middle_and_least_known() -> None:
    found = strengths(3, [Comparison(0, 1, 1.0)], 0.1)
    assert found.values[2] == 0
    assert found.deviations[2] == found.deviations.max()
    assert found.expected()[0] > 0.5 > found.expected()[1]


def test_a_round_robin_has_every_pair_once_and_swiss_rounds_repeat_none() -> None:
    assert len(round_robin(6)) == 15
    met: set[tuple[int, int]] = set()
    for _ in range(5):
        pairs = swiss_round([0.0] * 6, met, random.Random(1))
        assert not met & set(pairs)
        players = [player for pair in pairs for player in pair]
        assert len(players) == len(set(players))
        met.update(pairs)


def test_those_meet_who_have_won_alike() -> None:
    pairs = swiss_round([3, 0, 3, 0, 1, 1], set(), random.Random(1))
    assert set(pairs) == {(0, 2), (4, 5), (1, 3)}


@pytest.mark.parametrize("num_players", [3, 5, 7])
def test_with_an_odd_number_no_player_rests_in_both_of_two_rounds(num_players: int) -> None:
    """A player who rests twice has no verdict. The weaker win a little too, as at a judge's 0.8."""
    for seed in range(200):
        rng = random.Random(seed)
        points, met = [0.0] * num_players, set[tuple[int, int]]()
        for _ in range(2):
            pairs = swiss_round(points, met, rng)
            assert len(pairs) == num_players // 2
            met.update(pairs)
            for one, other in pairs:
                points[one] += 0.8
                points[other] += 0.2
        assert {player for pair in met for player in pair} == set(range(num_players)), seed
