"""Who is drawn, and who is let go."""

import random
from collections import Counter
from itertools import pairwise

from pettingllms.league.payoff import Payoff
from pettingllms.league.pool import Snapshot, draw, draw_weights, expected_score, thinned

POOL = [Snapshot("p", step, step) for step in (0, 10, 20, 30)]


def drawn(rule: str, payoff: Payoff, number: int = 4000) -> dict[str, float]:
    rng = random.Random(0)
    counts = Counter(draw(rule, POOL, "p", payoff, rng).name for _ in range(number))
    return {name: count / number for name, count in counts.items()}


def test_latest_is_always_the_newest() -> None:
    assert drawn("latest", Payoff()) == {"p@30": 1.0}


def test_uniform_meets_every_player_equally_often_whatever_the_results() -> None:
    payoff = Payoff()
    for _ in range(50):
        payoff.add("p", "p@0", 0.0)
    shares = drawn("uniform", payoff)
    assert set(shares) == {"p@0", "p@10", "p@20", "p@30"}
    assert all(0.22 < share < 0.28 for share in shares.values())


def test_prioritised_meets_those_more_often_that_win_more_often() -> None:
    payoff = Payoff()
    for opponent, lost in (("p@0", 0), ("p@10", 10), ("p@20", 20), ("p@30", 30)):
        for number in range(40):
            payoff.add("p", opponent, 0.0 if number < lost else 1.0)
    shares = drawn("prioritised", payoff)
    assert shares["p@0"] < shares["p@10"] < shares["p@20"] < shares["p@30"]
    weights = draw_weights("prioritised", POOL, "p", payoff)
    assert weights[3] / weights[1] > 5, "the square of what is lost, nearly"


def test_an_opponent_that_never_wins_is_still_drawn_while_few_games_are_known() -> None:
    payoff = Payoff()
    payoff.add("p", "p@0", 1.0)
    assert draw_weights("prioritised", POOL, "p", payoff)[0] > 0


def test_a_learner_without_games_is_expected_to_score_as_its_last_snapshot_did() -> None:
    payoff = Payoff()
    for _ in range(8):
        payoff.add("p@30", "p@10", 0.0)
    assert expected_score("p@10", POOL, "p", payoff) == 0.0
    assert expected_score("p@0", POOL, "p", payoff) == 0.5
    for _ in range(4):
        payoff.add("p", "p@10", 1.0)
    assert expected_score("p@10", POOL, "p", payoff) == 0.5, "four games against a prior of four"


def test_a_pool_that_is_thinned_spans_the_run() -> None:
    pool: list[Snapshot] = []
    for step in range(0, 1000, 10):
        pool = thinned([*pool, Snapshot("p", step, step)], 8)
        assert len(pool) <= 8
        assert pool[0].step == 0
        assert pool[-1].step == step
    gaps = [b.step - a.step for a, b in pairwise(pool)]
    assert max(gaps) <= 300, gaps


def test_each_policy_keeps_its_first_and_its_newest() -> None:
    pool = [Snapshot(policy, step, 0) for step in (0, 10, 20) for policy in ("p", "hunter")]
    names = {snapshot.name for snapshot in thinned(pool, 4)}
    assert names == {"p@0", "p@20", "hunter@0", "hunter@20"}


def test_a_pool_of_one_keeps_the_newest() -> None:
    assert thinned(POOL, 1) == POOL[-1:]
