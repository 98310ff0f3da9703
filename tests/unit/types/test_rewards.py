import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pettingllms.types import Failed, Rewards, Scored, total

LOST = Failed("lost", "judge")
IMPOSSIBLE: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    1.0001e9,
    -1e10,
    1e308,
    10**400,
    -(10**400),
    Fraction(10**400, 3),
    np.float32("nan"),
    np.float64("inf"),
    np.float32("-inf"),
]
NO_NUMBERS: list[Any] = [
    None,
    True,
    False,
    np.True_,
    "1.0",
    "nan",
    b"1",
    "",
    1j,
    complex(1, 0),
    [1.0],
    (1.0,),
    {"value": 1.0},
    np.array([1.0, 2.0]),
    np.array(1.0),
    Decimal(1),
    Scored,
    LOST,
    lambda: 1.0,
    object(),
]


@pytest.mark.parametrize("value", IMPOSSIBLE, ids=repr)
def test_a_reward_is_a_number_of_a_size_that_can_be_added(value: Any) -> None:
    with pytest.raises(ValueError, match="Failed"):
        Scored(value)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_what_is_no_number_is_no_reward(value: Any) -> None:
    with pytest.raises(TypeError, match="is not a number.*or Failed"):
        Scored(value)


@pytest.mark.parametrize("value", [0, -3, 0.5, -0.0, 1e9, -1e9, np.float32(0.5), np.int64(2)])
def test_a_number_is_kept_as_a_plain_float(value: Any) -> None:
    kept = Scored(value).value
    assert type(kept) is float
    assert kept == float(value)


def test_a_value_that_only_claims_to_be_small_is_refused() -> None:
    class Liar(float):
        def __abs__(self) -> float:
            return 0.0

    with pytest.raises(ValueError, match="Failed"):
        Scored(Liar("nan"))


MADE: list[Callable[[], Rewards]] = [
    lambda: Rewards(process={"tool": 1.0}),  # type: ignore[dict-item]
    lambda: Rewards(process={"tool": None}),  # type: ignore[dict-item]
    lambda: Rewards(agent={"tool": "right"}),  # type: ignore[dict-item]
    lambda: Rewards(agent={"tool": True}),  # type: ignore[dict-item]
    lambda: Rewards(team=1),  # type: ignore[arg-type]
    lambda: Rewards(team=math.nan),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("make", MADE)
def test_a_bare_value_is_no_reward_at_any_level(make: Callable[[], Rewards]) -> None:
    with pytest.raises(TypeError, match="expected Scored"):
        make()


@pytest.mark.parametrize("owner", ["", "nobody", "Judge", None, 3])
def test_a_failure_has_an_owner_that_there_is(owner: Any) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        Failed("lost", owner)


def test_a_sum_that_grows_out_of_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="Failed"):
        total([Scored(9e8), Scored(9e8)])


def test_a_sum_with_a_failure_is_the_failure() -> None:
    assert total([Scored(1.0), LOST, Scored(2.0)]) == LOST


def test_a_sum_of_nothing_is_nothing_and_not_zero() -> None:
    assert total([]) is None
    assert total([None, None]) is None


def test_a_sum_adds_the_rewards_that_were_given() -> None:
    assert total([Scored(1.0), None, Scored(2.5)]) == Scored(3.5)
