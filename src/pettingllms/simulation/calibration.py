"""Measured speeds of a machine, and the file that keeps them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.errors import ConfigError
from pettingllms.policies import plan_critics, plan_models
from pettingllms.simulation.speeds import (
    EngineSpeed,
    LearnerSpeed,
    LoopSpeed,
    ModelSpeeds,
    PublishSpeed,
    Speeds,
)
from pettingllms.simulation.workload import Lengths


@dataclass(frozen=True, slots=True)
class FittedRun:
    """How well the simulator repeats a run that it was fitted to."""

    name: str
    measured: float
    """Seconds per step."""
    simulated: float

    @property
    def difference(self) -> float:
        """Relative error."""
        return self.simulated / self.measured - 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Speeds of one model on one machine, fitted to runs."""

    model: str
    engine: EngineSpeed
    learner: LearnerSpeed
    """With one epoch and one optimizer update per batch."""
    publish: PublishSpeed
    loop: LoopSpeed
    lengths: Lengths
    runs: tuple[FittedRun, ...] = ()


def calibrated_speeds(config: RunConfig, calibration: Calibration) -> Speeds:
    """The speeds of a configuration that trains the calibrated model on the same machine."""
    check_calibratable(config, "CONFIG")
    (group,) = plan_models(config)
    if group.model != calibration.model:
        problem = (
            f"it was measured with the model {calibration.model}, and the config has "
            f"{group.model}; calibrate on runs of that model"
        )
        raise ConfigError("--calibration", [problem])
    return speeds_of(config, calibration)


def speeds_of(config: RunConfig, calibration: Calibration) -> Speeds:
    """A calibration as the speeds of a configuration. It has the learner's speed per epoch and per
    optimizer update."""
    (group,) = plan_models(config)
    num_epochs, one = config.learner.num_epochs, calibration.learner
    learner = replace(
        one,
        token=num_epochs * one.token,
        reply=num_epochs * one.reply,
        batch=num_epochs * config.learner.num_minibatches * one.batch,
    )
    model = ModelSpeeds(calibration.engine, learner, calibration.publish)
    return Speeds({group.name: model}, {}, calibration.loop)


def check_calibratable(config: RunConfig, name: str) -> None:
    """Raise ConfigError if the speeds of a run cannot be told apart."""
    problems = []
    if not config.inference.capabilities.lockstep:
        problems.append('inference.engine must be "torch": only its batches can be told apart')
    if len(plan_models(config)) != 1 or plan_critics(config):
        problems.append("all policies must share one model, without a separate critic")
    if config.inference.num_replicas > 1 or config.learner.num_ranks > 1:
        problems.append("inference.num_replicas and learner.num_ranks must be 1")
    if config.rollout.max_staleness:
        problems.append("rollout.max_staleness must be 0: engine and learner share cores")
    if config.rollout.num_workers not in ("auto", 0):
        problems.append("rollout.num_workers must be 0")
    if problems:
        raise ConfigError(name, problems)


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON."""
    data = json.dumps(_finite(asdict(calibration)), indent=2)
    path.write_text(data + "\n", encoding="utf-8")


def read_calibration(path: Path) -> Calibration:
    """Read a calibration; ConfigError if the file is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        lengths = data["lengths"]
        return Calibration(
            data["model"],
            EngineSpeed(**_known(data["engine"])),
            LearnerSpeed(**_known(data["learner"])),
            PublishSpeed(**data["publish"]),
            LoopSpeed(**data["loop"]),
            Lengths(**{**lengths, "prompts": tuple(map(tuple, lengths["prompts"]))}),
            tuple(FittedRun(**one) for one in data["runs"]),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ConfigError(
            str(path), [f"not a calibration ({error!r}); write one with `simulate --calibrate`"]
        ) from error


def _finite(data: Any) -> Any:
    """JSON has no infinity: a missing key is the default, which is infinite."""
    if isinstance(data, Mapping):
        return {key: _finite(one) for key, one in data.items() if one != float("inf")}
    return data


def _known(data: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in data.items()}
