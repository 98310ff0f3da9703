"""Fitting speeds: known speeds are found again, and predict a run that was not fitted to."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import ConfigError
from pettingllms.policies import plan_models
from pettingllms.preflight.hardware import Hardware
from pettingllms.simulation.assumptions import Assumptions
from pettingllms.simulation.calibrate import Measured, _fit, fit_lognormal
from pettingllms.simulation.calibration import (
    Calibration,
    calibrated_speeds,
    read_calibration,
    write_calibration,
)
from pettingllms.simulation.recorded import RecordedStep, recorded_steps
from pettingllms.simulation.run import SimulatedRun
from pettingllms.simulation.simulate import Question, simulate_here
from pettingllms.simulation.speeds import EngineSpeed, LearnerSpeed, LoopSpeed, PublishSpeed
from pettingllms.simulation.workload import EpisodePlan, Lengths, Workload, make_workload

TRUE = Calibration(
    "m",
    EngineSpeed(step=0.002, token=3e-5, context=1e-8, prefill=2e-5, call=0.01),
    LearnerSpeed(token=4e-5, read=1e-5, batch=0.08, reply=1e-4),
    PublishSpeed(0.05),
    LoopSpeed(0.0, 4e-4, 0.02, 3e-5, num_workers=1, concurrent_learners=False),
    Lengths(((80.0, 0.0), (60.0, 1.0)), 40.0, 0.8),
)
QUIET = Assumptions(slow_share=0.0, mtbf_hours=0.0)
HERE = Hardware("cpu", 0, 1, 1)


def config_of(num_tasks: int, num_samples: int, num_tokens: int, **sections: Any) -> RunConfig:
    policy = {"kind": "lora", "model": "m"}
    return parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"planner": policy, "checker": policy},
            "roles": {"planner": "planner", "checker": "checker"},
            "rollout": {
                "num_tasks": num_tasks,
                "num_samples": num_samples,
                "max_reply_tokens": num_tokens,
            },
            "inference": {"engine": "torch"},
            **sections,
        }
    )


class Remembered:
    """A workload whose groups are kept."""

    def __init__(self, work: Workload) -> None:
        self._work = work
        self.groups: list[list[EpisodePlan]] = []

    def group(self, number: int, attempt: int) -> list[EpisodePlan]:
        self.groups.append(self._work.group(number, attempt))
        return self.groups[-1]


def measured(
    name: str, config: RunConfig, noise: float, num_steps: int = 12, true: Calibration = TRUE
) -> Measured:
    """A run at the true speeds; other programs slow some of its steps down."""
    rng = random.Random(name)
    work = Remembered(make_workload(config, QUIET, 1, true.lengths))
    run = SimulatedRun(config, calibrated_speeds(config, true), work, QUIET, 0, num_steps).run()
    steps, count = [], config.rollout.num_tasks
    for at, step in enumerate(run.steps):
        factor = (3.0 if rng.random() < noise else 1.0) * (1 + noise * rng.uniform(-0.3, 0.3))
        seconds = {name: value * factor for name, value in step.seconds.items()}
        seconds["step"] = sum(seconds.values())
        steps.append(RecordedStep(seconds, work.groups[at * count : (at + 1) * count]))
    return Measured(name, config, steps)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_fit_predicts_configurations_that_it_has_not_seen(noise: float) -> None:
    runs = [measured(f"{sizes}", config_of(*sizes), noise)
            for sizes in ((8, 4, 16), (16, 4, 32), (8, 8, 64))]  # fmt: skip
    found = _fit("m", runs)
    for sizes in ((12, 6, 24), (16, 8, 48)):
        config = config_of(*sizes)
        expected = simulate_here(Question(config, HERE, num_steps=20), TRUE)
        predicted = simulate_here(Question(config, HERE, num_steps=20), found)
        bound = 0.15 if noise else 0.06
        assert predicted.seconds_per_step == pytest.approx(expected.seconds_per_step, rel=bound)
        for part in ("sampling", "learning", "publishing"):
            assert predicted.parts[part] == pytest.approx(expected.parts[part], rel=2 * bound)


def test_a_fit_tells_passes_without_gradients_and_further_updates_apart() -> None:
    """Several updates per batch need the log-probs before the first one."""
    speed = replace(TRUE.learner, read=TRUE.learner.token / 3)
    true = replace(TRUE, learner=speed)
    learners = ({"num_minibatches": 2}, {"num_epochs": 2}, {})
    runs = [measured(f"{sizes}", config_of(*sizes, learner=learner), 0.0, 5, true)
            for learner in learners for sizes in ((8, 4, 16), (8, 8, 64))]  # fmt: skip
    found = _fit("m", runs)
    for learner in learners:
        question = Question(config_of(12, 6, 24, learner=learner), HERE, num_steps=5)
        expected, predicted = (simulate_here(question, one) for one in (true, found))
        assert predicted.parts["learning"] == pytest.approx(expected.parts["learning"], rel=0.05)


def test_values_of_a_head_are_not_counted_as_work_of_the_driver() -> None:
    head = {"algo": {"type": "ppo"}, "critic": {"kind": "head"}}
    config = config_of(8, 4, 16, **head)
    found = _fit("m", [measured("a run", config, 0.0)])
    question = Question(config, HERE, num_steps=5)
    expected, predicted = (simulate_here(question, one) for one in (TRUE, found))
    assert expected.parts["valuing"] > expected.parts["driver"] / 2
    assert predicted.parts["driver"] == pytest.approx(expected.parts["driver"], rel=0.05)


def test_a_measured_speed_is_that_of_one_epoch_and_one_update() -> None:
    once, twice = (
        next(iter(calibrated_speeds(config_of(8, 4, 16, learner=learner), TRUE).models.values()))
        for learner in ({}, {"num_epochs": 2, "num_minibatches": 3})
    )
    assert once.learner == TRUE.learner
    assert twice.learner is not None
    tokens, replies = 1000.0, 50
    assert twice.learner.train_seconds(tokens, replies) == pytest.approx(
        6 * TRUE.learner.batch + 2 * (TRUE.learner.token * tokens + TRUE.learner.reply * replies)
    )


def test_a_lognormal_is_found_although_long_values_are_cut() -> None:
    rng = np.random.default_rng(0)
    lengths = np.rint(np.exp(np.log(50) + 0.7 * rng.standard_normal(4000)))
    ended, cut = lengths[lengths < 80], lengths[lengths >= 80]
    median, sigma = fit_lognormal(ended.tolist(), [80] * len(cut))
    assert median == pytest.approx(50, rel=0.05)
    assert sigma == pytest.approx(0.7, rel=0.05)


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_calibration(TRUE, tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == TRUE
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a calibration"):
        read_calibration(tmp_path / "c.json")


def test_a_config_that_was_not_calibrated_is_refused() -> None:
    other = config_of(8, 4, 16, inference={"engine": "vllm"})
    with pytest.raises(ConfigError, match="inference.engine must be"):
        calibrated_speeds(other, TRUE)
    config = config_of(8, 4, 16)
    (group,) = plan_models(config)
    assert calibrated_speeds(config, TRUE).models[group.name].engine == TRUE.engine


def test_recorded_decisions_have_the_tokens_of_the_run() -> None:
    run = Path(__file__).parents[3] / "examples" / "a_run"
    steps = recorded_steps(run)
    assert steps
    decisions = [d for group in steps[0].groups for one in group for d in one.decisions]
    siblings = {len(ask.replies) for decision in decisions for ask in decision}
    assert max(siblings) > 1, "a tree rollout: siblings are one request"
    assert all(0 <= ask.shared <= ask.prompt for decision in decisions for ask in decision)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a run folder"):
        recorded_steps(tmp_path)
