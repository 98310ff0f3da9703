"""What a section of engines works out from its keys."""

import pytest
from pydantic import ValidationError

from pettingllms.config import LearnerConfig, RunConfig, parse_config
from pettingllms.config.engines import MISMATCH_BOUNDS
from pettingllms.errors import ConfigError


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


@pytest.mark.parametrize(
    ("decay", "floor", "step", "share"),
    [
        ("linear", 0.3, 6, 0.65),
        ("linear", 0.0, 11, 0.0),
        ("cosine", 0.0, 1, 1.0),
        ("cosine", 0.0, 6, 0.5),
        ("cosine", 0.2, 11, 0.2),
        ("cosine", 0.2, 99, 0.2),
        ("cosine", 0.0, 3, 0.9045084971874737),  # (1 + cos 36°) / 2
    ],
)
def test_a_decay_has_a_shape_and_a_floor(decay, floor, step, share) -> None:
    config = LearnerConfig(decay_steps=10, decay=decay, min_lr_share=floor)
    assert config.rate(10**6, step, num_tokens=0) == pytest.approx(share)
    by_tokens = LearnerConfig(decay_tokens=100, decay=decay, min_lr_share=floor)
    assert by_tokens.cooled(1, 10 * (step - 1)) == pytest.approx(share)


def test_warmup_multiplies_a_cosine() -> None:
    config = LearnerConfig(warmup_steps=4, decay_steps=10, decay="cosine", min_lr_share=0.0)
    assert config.rate(1, 6, num_tokens=0) == pytest.approx(0.5 * 0.5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"decay": "cosine"}, "needs a length; set decay_steps"),
        ({"min_lr_share": 0.3}, "needs a length; set decay_steps"),
        ({"decay": "constant", "decay_steps": 5}, "has no length"),
        ({"decay": "constant", "decay_tokens": 5}, "has no length"),
        ({"decay": "constant", "min_lr_share": 0.0}, "needs a length"),
    ],
)
def test_a_shape_without_a_length_is_rejected(keys, message) -> None:
    with pytest.raises(ValidationError, match=message):
        LearnerConfig(**keys)


def test_a_run_with_its_own_length_keeps_the_shape() -> None:
    """`sft`, `dpo` and `verifier` decay over their own steps, unless the rate is constant."""
    assert LearnerConfig().over(10).rate(0, 11, 0) == pytest.approx(0.1)
    assert LearnerConfig(decay="constant").over(10).rate(0, 11, 0) == 1.0
    shaped = LearnerConfig(decay="cosine", decay_tokens=5, min_lr_share=0.0).over(10)
    assert shaped.rate(0, 6, num_tokens=10**9) == pytest.approx(0.5)


def run_with(inference: str, learner: str, device: str = "auto") -> RunConfig:
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "lora", "model": "m"}},
            "inference": {"dtype": inference},
            "learner": {"dtype": learner},
            "cluster": {"device": device},
        }
    )


@pytest.mark.parametrize(
    ("device", "given", "dtype"),
    [
        ("cpu", "auto", "float32"),
        ("cuda", "auto", "bfloat16"),
        ("gpu", "auto", "bfloat16"),
        ("cpu", "bfloat16", "bfloat16"),
        ("cuda", "float32", "float32"),
    ],
)
def test_dtypes_follow_the_device_unless_they_are_given(device, given, dtype) -> None:
    for known in (run_with(given, "auto"), run_with("auto", given)):
        sides = {known.for_device(device).inference.dtype, known.for_device(device).learner.dtype}
        assert sides == {dtype, "float32" if device == "cpu" else "bfloat16"}


@pytest.mark.parametrize(
    ("inference", "learner", "device", "dtype"),
    [
        ("auto", "auto", "cpu", "float32"),
        ("auto", "auto", "cuda", "bfloat16"),
        ("float32", "float32", "cuda", "float32"),
        ("float32", "auto", "cuda", "bfloat16"),
        ("auto", "bfloat16", "cpu", "bfloat16"),
    ],
)
def test_the_mismatch_bound_follows_the_resolved_dtypes(inference, learner, device, dtype) -> None:
    known = run_with(inference, learner).for_device(device)
    assert known.mismatch_bound() == MISMATCH_BOUNDS[dtype]


def test_without_a_device_the_mismatch_bound_is_the_wider_one() -> None:
    assert run_with("auto", "auto").mismatch_bound() == MISMATCH_BOUNDS["bfloat16"]
    assert run_with("auto", "auto", "cpu").mismatch_bound() == MISMATCH_BOUNDS["float32"]


@pytest.mark.parametrize(
    ("given", "recorded", "is_same"),
    [
        ("auto", "float32", True),
        ("auto", "bfloat16", True),
        ("auto", "auto", True),
        ("float32", "float32", True),
        ("float32", "bfloat16", False),
        ("float32", "auto", False),
    ],
)
def test_a_recorded_run_matches_auto(given: str, recorded: str, is_same: bool) -> None:
    assert run_with(given, "auto").matches(run_with(recorded, "bfloat16")) == is_same
    assert run_with("auto", given).matches(run_with("float32", recorded)) == is_same
    changed = run_with(recorded, recorded).model_copy(update={"seed": 9})
    assert not run_with(given, given).matches(changed)


def test_only_frozen_bases_of_adapters_are_quantized() -> None:
    data = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "roles": {"player_x": "x", "player_o": "o"},
        "learner": {"base_bits": 4},
    }
    lora, full = {"kind": "lora", "model": "m"}, {"kind": "full", "model": "m"}
    run = parse_config({**data, "policies": {"x": lora, "o": {"kind": "frozen", "model": "m"}}})
    assert run.learner.base_bits == 4
    exact = run.for_device("cpu")  # float32, but sampled without quantization
    assert exact.mismatch_bound() == MISMATCH_BOUNDS["bfloat16"]
    plain = exact.learner.model_copy(update={"base_bits": None})
    assert exact.model_copy(update={"learner": plain}).mismatch_bound() == 1e-4
    wanted = r'learner.base_bits: 4 is for frozen bases, but policies.o .*; set kind = "lora"'
    with pytest.raises(ConfigError, match=wanted):
        parse_config({**data, "policies": {"x": lora, "o": full}})
    scripted = {"kind": "scripted", "player": "random"}
    with pytest.raises(ConfigError, match='no policy has kind = "lora"; leave the key out'):
        parse_config({**data, "policies": {"x": scripted, "o": scripted}})
    with pytest.raises(ValidationError, match="8 or 4"):
        LearnerConfig(base_bits=16)
