import math

import pytest

from pettingllms.types import Failed, Scored, total

LOST = Failed("lost", "judge")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reward_is_a_finite_number(value: float) -> None:
    with pytest.raises(ValueError, match="give Failed"):
        Scored(value)


def test_a_sum_with_a_failure_is_the_failure() -> None:
    assert total([Scored(1.0), LOST, Scored(2.0)]) == LOST


def test_a_sum_of_nothing_is_nothing_and_not_zero() -> None:
    assert total([]) is None
    assert total([None, None]) is None


def test_a_sum_adds_what_was_paid() -> None:
    assert total([Scored(1.0), None, Scored(2.5)]) == Scored(3.5)
