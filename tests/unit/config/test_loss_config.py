"""The [loss] section, read by the class that it names, and that of run folders of version 0.1."""

import pytest

from pettingllms.config import parse_config
from pettingllms.config.renames import migrate
from pettingllms.errors import ConfigError

RUN = {
    "env": {"id": "tic_tac_toe-v1"},
    "algo": {"type": "grpo"},
    "policies": {"p": {"kind": "full", "model": "m"}},
}
OF_0_1 = {
    "beta": 0.1,
    "dual_clip": 3.0,
    "kl": 0.25,
    "entropy": 0.5,
    "max_weight": 2.0,
    "value": 0.5,
    "clip_low": 0.1,
}


@pytest.mark.parametrize(
    ("section", "low", "high", "normalize"),
    [
        ({}, 0.2, 0.28, "token"),
        ({"type": "gspo"}, 3e-4, 4e-4, "sequence"),
        ({"type": "gspo", "normalize": "token"}, 3e-4, 4e-4, "token"),
    ],
)
def test_defaults_are_those_of_the_loss(section: dict, low, high, normalize) -> None:
    loss = parse_config({**RUN, "loss": section}).loss
    assert (loss.clip_low, loss.clip_high, loss.normalize) == (low, high, normalize)
    assert parse_config(RUN).loss.type == "clip"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"type": "plain", "dual_clip": 2.0}, "loss.dual_clip: .* only clip and gspo; leave"),
        ({"beta": 0.2}, "loss.beta: renamed; write dpo.beta"),
        ({"clip_lo": 0.1}, "loss.clip_lo: unknown key; did you mean 'clip_low'"),
        ("clip", "loss: not a table"),
    ],
)
def test_options_of_another_loss_are_rejected(section: object, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse_config({**RUN, "loss": section})


@pytest.mark.parametrize("name", ["clip", "gspo", "plain"])
def test_run_folders_of_0_1_stay_readable(name: str) -> None:
    loss = parse_config(migrate({**RUN, "loss": {"type": name, **OF_0_1}})).loss
    assert (loss.type, loss.kl_coef, loss.entropy_coef) == (name, 0.25, 0.5)
    assert getattr(loss, "clip_low", 0.1) == 0.1
