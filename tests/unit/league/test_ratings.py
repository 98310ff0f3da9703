"""Ratings: they move the right way, grow surer, and are saved to the last bit."""

import json
import random
import sys

import pytest

pytest.importorskip("openskill")

from pettingllms.errors import ConfigError
from pettingllms.league import ratings as module
from pettingllms.league.ratings import Rating, Ratings


def test_who_wins_rises_and_both_are_better_known() -> None:
    ratings = Ratings()
    ratings.add("a", "b", 1.0)
    assert ratings.of("a").mu > Rating().mu > ratings.of("b").mu
    assert max(ratings.of("a").sigma, ratings.of("b").sigma) < Rating().sigma
    assert ratings.order(["b", "a"]) == ["a", "b"]


def test_a_draw_brings_two_together() -> None:
    ratings = Ratings({"a": Rating(30, 2), "b": Rating(20, 2)})
    ratings.add("a", "b", 0.5)
    assert ratings.of("a").mu < 30
    assert ratings.of("b").mu > 20


def test_who_does_not_move_is_known_ever_better_and_who_moves_never_for_good() -> None:
    still, moving = Ratings(tau=0.0), Ratings()
    rng = random.Random(0)
    for _ in range(3000):
        result = float(rng.random() < 0.5)
        still.add("a", "b", result)
        moving.add("a", "b", result)
    assert still.of("a").sigma < 0.6 < moving.of("a").sigma


def test_ratings_are_read_back_as_they_were() -> None:
    ratings = Ratings()
    for number in range(20):
        ratings.add("a", f"x{number % 3}", (number % 3) / 2)
    again = Ratings.from_json(json.loads(json.dumps(ratings.to_json())))
    assert again == ratings


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module._model.cache_clear()
    monkeypatch.setitem(sys.modules, "openskill.models", None)
    with pytest.raises(ConfigError, match=r"pettingllms\[league\]"):
        Ratings().add("a", "b", 1.0)
