"""How the level follows success, by table and by property."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.config import CurriculumConfig
from pettingllms.training.curriculum import Curriculum, success_share
from pettingllms.types import Episode, Failed, Task


def options(**more: object) -> CurriculumConfig:
    return CurriculumConfig(**{"key": "size", "levels": [1, 2, 3], "window": 2, **more})


def levels(shares: list[float], **more: object) -> list[int]:
    """The level after each step."""
    at, found = Curriculum(options(**more)), []
    for share in shares:
        at = at.with_step(share).next()
        found.append(at.level)
    return found


@pytest.mark.parametrize(
    ("shares", "more", "expected"),
    [
        ([1, 1, 1, 1, 1, 1], {}, [1, 2, 2, 3, 3, 3]),
        ([0.8, 0.8], {}, [1, 2]),
        ([0.8, 0.79], {}, [1, 1]),
        ([0, 1, 0.6], {}, [1, 1, 2]),
        ([1, 1, 0, 0, 0], {}, [1, 2, 2, 2, 2]),
        ([1, 1, 0, 0, 0], {"lower_at": 0.1}, [1, 2, 2, 1, 1]),
        ([1, 1, 0.1, 0.1, 0.1], {"lower_at": 0.1}, [1, 2, 2, 2, 2]),
        ([0, 0, 0], {"lower_at": 0.5}, [1, 1, 1]),
        ([0.5, 0.5], {"window": 1, "raise_at": 0.5}, [2, 3]),
    ],
)
def test_how_the_level_moves(shares: list[float], more: dict, expected: list[int]) -> None:
    assert levels(shares, **more) == expected


SHARES = st.lists(st.floats(0, 1), max_size=30)


@given(SHARES, st.integers(1, 5), st.sampled_from([None, 0.2, 0.5]))
def test_a_level_moves_by_one_within_its_bounds_and_only_after_a_whole_window(
    shares: list[float], window: int, lower_at: float | None
) -> None:
    found = [1, *levels(shares, window=window, lower_at=lower_at)]
    moves = [at for at in range(1, len(found)) if found[at] != found[at - 1]]
    for at in moves:
        assert abs(found[at] - found[at - 1]) == 1
    for before, after in zip([0, *moves], moves, strict=False):
        assert after - before >= window
    assert set(found) <= {1, 2, 3}
    assert lower_at is not None or found == sorted(found)


@given(SHARES, st.integers(0, 30))
def test_one_that_was_saved_goes_on_as_if_never_left(shares: list[float], cut: int) -> None:
    whole = Curriculum(options(window=3, lower_at=0.3))
    for share in shares:
        whole = whole.with_step(share).next()
    first = Curriculum(options(window=3, lower_at=0.3))
    for share in shares[:cut]:
        first = first.with_step(share).next()
    second = Curriculum(first.config, first.level, tuple(json.loads(json.dumps(first.recent))))
    for share in shares[cut:]:
        second = second.with_step(share).next()
    assert second == whole


def episode(failed: bool = False, **success: bool) -> Episode:
    failure = Failed("cut", "limit") if failed else None
    return Episode("e", "env", Task("t"), 0, success=success, failure=failure)


def test_success_is_the_mean_over_roles_or_of_the_one_that_counts() -> None:
    episodes = [episode(a=True, b=False), episode(a=True, b=True), episode(failed=True)]
    assert success_share(episodes, ["a", "b"]) == pytest.approx(0.5)
    assert success_share(episodes, ["a"]) == pytest.approx(2 / 3)
