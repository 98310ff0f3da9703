"""What a section of engines works out from its keys."""

import pytest
from pydantic import ValidationError

from pettingllms.config import LearnerConfig


@pytest.mark.parametrize(
    ("warmup", "decay", "num_updates", "step", "share"),
    [
        (0, 0, 0, 1, 1.0),
        (0, 0, 900, 900, 1.0),
        (4, 0, 0, 1, 0.25),
        (4, 0, 3, 2, 1.0),
        (0, 10, 0, 1, 1.0),
        (0, 10, 40, 6, 0.55),
        (0, 10, 80, 11, 0.1),
        (0, 10, 999, 99, 0.1),
        (4, 10, 1, 6, 0.275),
    ],
)
def test_the_learning_rate_rises_and_falls(warmup, decay, num_updates, step, share) -> None:
    config = LearnerConfig(warmup_steps=warmup, decay_steps=decay)
    assert config.rate(num_updates, step, num_tokens=10**9) == pytest.approx(share)


@pytest.mark.parametrize(("num_tokens", "share"), [(0, 1.0), (500, 0.55), (1000, 0.1), (5000, 0.1)])
def test_the_learning_rate_falls_by_tokens_whatever_the_step(num_tokens, share) -> None:
    """Two arms with one token budget are at the same point of the schedule, however many steps
    each took for it."""
    config = LearnerConfig(decay_tokens=1000)
    for step in (1, 7, 900):
        assert config.rate(0, step, num_tokens) == pytest.approx(share)
        assert config.cooled(step, num_tokens) == pytest.approx(share)


def test_a_schedule_goes_by_steps_or_by_tokens() -> None:
    with pytest.raises(ValidationError, match="exclude each other"):
        LearnerConfig(decay_steps=10, decay_tokens=1000)
