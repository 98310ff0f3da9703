"""Measures of a verifier against counting by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.verifier.evaluate import auc, measure, roc

scored = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans()), max_size=12)


@given(scored)
def test_the_area_is_the_share_of_pairs_in_the_right_order(some: list[tuple[float, bool]]) -> None:
    said, true = np.array([s for s, _ in some]), np.array([t for _, t in some], dtype=bool)
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(said[true].tolist(), said[~true])]
    wanted = sum(pairs) / len(pairs) if pairs else None
    assert auc(said, true) == (pytest.approx(wanted) if pairs else None)


@given(scored)
def test_the_area_is_that_under_the_curve(some: list[tuple[float, bool]]) -> None:
    said, true = np.array([s for s, _ in some]), np.array([t for _, t in some], dtype=bool)
    area = auc(said, true)
    if area is None:
        assert roc(said, true) == []
        return
    points = roc(said, true)
    assert points[0] == (0, 0)
    assert points[-1] == (1, 1)
    assert np.trapezoid([y for _, y in points], [x for x, _ in points]) == pytest.approx(area)


def test_calibration_by_hand() -> None:
    """Bins of four answers at 0.9, three of them right, and of one wrong answer at 0.25."""
    report = measure([0.9, 0.9, 0.9, 0.9, 0.25], [True, True, True, False, False], ["q"] * 5)
    assert [(b.count, b.score, b.accuracy) for b in report.bins] == [
        (1, pytest.approx(0.25), 0.0),
        (4, pytest.approx(0.9), 0.75),
    ]
    assert report.ece == pytest.approx((4 * 0.15 + 0.25) / 5)
    assert report.brier == pytest.approx((3 * 0.01 + 0.81 + 0.0625) / 5)
    assert report.accuracy == pytest.approx(4 / 5)


def test_one_that_knows_hard_questions_alone_is_good_over_all_and_a_coin_within() -> None:
    easy, hard = [(0.9, True)] * 3 + [(0.9, False)], [(0.1, True)] + [(0.1, False)] * 3
    said, true = zip(*easy, *hard, strict=True)
    report = measure(said, true, ["easy"] * 4 + ["hard"] * 4)
    assert report.auc == pytest.approx(0.75)
    assert report.auc_within == 0.5


def test_without_both_kinds_there_is_no_area() -> None:
    report = measure([0.5, 1.0], [True, True], ["q", "r"], num_failed=3)
    assert (report.auc, report.auc_within, report.roc) == (None, None, [])
    assert report.num_failed == 3
