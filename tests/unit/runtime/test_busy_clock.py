"""Work is measured as the time in which there is any, and by the slots that it fills."""

import pytest

from pettingllms.runtime.busy_clock import BusyClock


class Now:
    """A clock that a test moves."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_overlapping_work_counts_once_and_its_slots_add_up() -> None:
    now = Now()
    clock = BusyClock(4, now)
    now.seconds = 1
    with clock.busy(1):
        now.seconds = 3
        with clock.busy(2):
            now.seconds = 7
        now.seconds = 8
    now.seconds = 20
    assert clock.use() == (7, pytest.approx((2 + 3 * 4 + 1) / 4))


def test_work_beyond_the_slots_waits() -> None:
    now = Now()
    clock = BusyClock(2, now)
    with clock.busy(6):
        now.seconds = 5
        assert clock.use() == (5, 5), "work in progress counts"
    assert clock.use() == (5, 5)


def test_work_that_fails_ends() -> None:
    now = Now()
    clock = BusyClock(1, now)

    def work() -> None:
        with clock.busy():
            now.seconds = 2
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    now.seconds = 9
    assert clock.use() == (2, 2)
