"""What a section of engines works out from its keys."""

import pytest

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
    assert config.rate(num_updates, step) == pytest.approx(share)
