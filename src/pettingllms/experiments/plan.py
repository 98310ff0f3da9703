"""The plan of an experiment for one seed: its runs and their folders.

All configs are parsed before the first run, so a typo in the last evaluation fails at once.
"""

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.config import (
    EnvConfig,
    RunConfig,
    apply_overrides,
    parse_config,
    read_config,
    to_toml,
)
from pettingllms.config.renames import migrate
from pettingllms.config.run import policies_without_roles
from pettingllms.errors import ConfigError, nearest
from pettingllms.experiments.experiment import (
    MODEL,
    Arm,
    Evaluation,
    Experiment,
    Floor,
    Model,
    WarmStart,
)
from pettingllms.experiments.preregistration import Preregistration, check_runs
from pettingllms.experiments.scoring import EXPLOITABILITY_METRICS
from pettingllms.experiments.stages import Export, VerifierStage
from pettingllms.models import find_model
from pettingllms.runs.folder import slug

SEED = "seed-"
OF_TRAINING: Any = {
    "league": True,
    "co_players": True,
    "train": {"alternate"},
    "policies": {"__all__": {"join_step"}},
}
"""Settings of training that evaluations ignore."""
WORD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """An experiment to run, with the options of the command line."""

    experiment: Experiment
    source: Path
    """The experiment's folder."""
    out: Path
    command: str
    """Command that reproduces the whole experiment."""
    floors: Sequence[Floor] = ()
    """Bounds that results must reach."""
    joined: Sequence[Path] = ()
    """results.json files from other machines to add."""
    preregistration: Preregistration | None = None
    """The experiment's `plan.toml`, if it has one."""


@dataclass(frozen=True, slots=True)
class PlannedEvaluation:
    """A cell of the table."""

    spec: Evaluation
    config: RunConfig
    role: str
    out: Path
    """Episode file."""


@dataclass(frozen=True, slots=True)
class PlannedArm:
    """A row of the table, for one seed."""

    spec: Arm
    config: RunConfig
    folder: Path
    """Run folder."""
    evaluations: list[PlannedEvaluation]
    exports: list["PlannedExport"] = field(default_factory=list)
    """Policies that other arms play with."""

    def configs(self) -> list[RunConfig]:
        """The configs of training and of each evaluation."""
        return [self.config, *(cell.config for cell in self.evaluations)]


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A warm start: its run and the resulting model."""

    spec: WarmStart
    config: RunConfig
    folder: Path
    model: Path


@dataclass(frozen=True, slots=True)
class PlannedExport:
    """A trained policy of an arm, and the folder of its model."""

    spec: Export
    model: Path


@dataclass(frozen=True, slots=True)
class PlannedVerifier:
    """A verifier: where its answers and report go, and its folder."""

    spec: VerifierStage
    config: RunConfig
    folder: Path
    model: Path


@dataclass(frozen=True, slots=True)
class Plan:
    """All runs of one seed."""

    seed: int
    folder: Path
    model: Path
    """Folder of the base model."""
    starts: list[PlannedStart] = field(default_factory=list)
    verifiers: list[PlannedVerifier] = field(default_factory=list)
    exports: list[PlannedExport] = field(default_factory=list)
    arms: list[PlannedArm] = field(default_factory=list)

    def envs(self) -> list[EnvConfig]:
        """The distinct environments."""
        return [config.env for config in self._env_configs()]

    def models_in(self, *configs: RunConfig) -> list[Path]:
        """The models of this seed that the configs refer to."""
        text = "\n".join(map(to_toml, configs))
        made: list[PlannedStart | PlannedVerifier | PlannedExport] = []
        made += [*self.starts, *self.verifiers, *self.exports]
        models = [self.model, *(one.model for one in made)]
        return [model for model in models if re.search(rf"{re.escape(str(model))}(?![\w-])", text)]

    def _env_configs(self) -> list[RunConfig]:
        """One config per distinct environment."""
        configs = [
            *(arm.config for arm in self.arms),
            *(start.config for start in self.starts),
            *(stage.config for stage in self.verifiers),
        ]
        return list({repr(config.env): config for config in configs}.values())

    def basis(self, model: Model) -> str:
        """Everything that determines the initial models of the arms, as JSON."""
        starts = [self.written(start.config) for start in self.starts]
        envs = [self.written(config) for config in self._env_configs()] if not model.name else []
        parts = {"model": model.model_dump(), "texts": envs, "warm_starts": starts}
        if self.verifiers:
            parts["verifiers"] = [self.written(one.config) for one in self.verifiers]
        return json.dumps(parts, indent=1)

    def written(self, config: RunConfig) -> str:
        """A config as TOML with placeholders for local folders."""
        text = to_toml(config)
        return text.replace(str(self.folder), "{seed}").replace(str(self.model), "{model}")

    def read(self, text: str) -> RunConfig:
        """Parse a config from `written`, new options get their defaults."""
        local = text.replace("{model}", str(self.model)).replace("{seed}", str(self.folder))
        return parse_config(migrate(tomllib.loads(local)))


def make_plan(request: ExperimentRequest, seed: int) -> Plan:
    """Parse every config of the experiment and fill in its placeholders.

    Folders in configs are absolute.
    """
    experiment, source = request.experiment, request.source
    top = request.out.resolve() / f"{SEED}{seed}"
    made = not experiment.model.name
    plan = Plan(seed, top, top / MODEL if made else find_model(experiment.model.name))
    words = {MODEL: str(plan.model)}
    for start in experiment.warm_starts:
        config = _read(source / start.config, [*start.set, f"seed={seed}"], words)
        model = top / "models" / slug(start.name)
        plan.starts.append(PlannedStart(start, config, top / slug(f"warm {start.name}"), model))
        words[start.name] = str(model)
    for stage in experiment.verifiers:
        config = _read(source / stage.config, [*stage.set, f"seed={seed}"], words)
        model = top / "models" / slug(stage.name)
        folder = top / slug(f"verifier {stage.name}")
        plan.verifiers.append(PlannedVerifier(stage, config, folder, model))
        words[stage.name] = str(model)
    for export in experiment.exports:
        model = top / "models" / slug(export.name)
        plan.exports.append(PlannedExport(export, model))
        words[export.name] = str(model)
    for arm in experiment.arms:
        config = _read(source / arm.config, [*arm.set, f"seed={seed}"], words)
        if arm.trained and not config.trained_policies():
            raise ConfigError(arm.name, ["has no trained policy; set trained = false"])
        folder = top / slug(arm.name)
        cells = [_cell(config, column, folder, words) for column in experiment.evaluations]
        exports = [one for one in plan.exports if one.spec.arm == arm.name]
        _check_exports(arm, config, exports)
        plan.arms.append(PlannedArm(arm, config, folder, cells, exports))
    _keep_needed(plan)
    if request.preregistration is not None:
        check_runs(request.preregistration, plan)
    return plan


def _check_exports(arm: Arm, config: RunConfig, exports: Sequence[PlannedExport]) -> None:
    """Require a trained arm that has the exported policies."""
    for export in exports:
        if not arm.trained or export.spec.policy not in config.trained_policies():
            wrong = f"'{arm.name}' trains no policy '{export.spec.policy}'"
            raise ConfigError(f"export '{export.spec.name}'", [wrong])


def _keep_needed(plan: Plan) -> None:
    """Drop verifiers and warm starts that no config refers to."""
    configs = [config for arm in plan.arms for config in arm.configs()]
    for stage in plan.verifiers[:]:
        if stage.model in plan.models_in(*configs):
            configs.append(stage.config)
        else:
            plan.verifiers.remove(stage)
    for start in reversed(plan.starts[:]):
        if start.model in plan.models_in(*configs):
            configs.append(start.config)
        else:
            plan.starts.remove(start)


def planned_seeds(out: Path) -> list[int]:
    """Seeds with an existing folder."""
    names = (re.fullmatch(rf"{SEED}(-?\d+)", folder.name) for folder in out.glob(f"{SEED}*"))
    return sorted(int(name[1]) for name in names if name)


def _cell(
    config: RunConfig, column: Evaluation, folder: Path, words: Mapping[str, str]
) -> PlannedEvaluation:
    data = config.model_dump(mode="json", exclude_none=True, exclude=OF_TRAINING)
    source = f"evaluation '{column.name}'"
    exploitability = (
        ["eval.exploitability=true"] if column.measure in EXPLOITABILITY_METRICS else []
    )
    met = set(policies_without_roles(config.league, None, config.co_players))
    evaluated = _parse(data, source, [*exploitability, *column.set], words, met)
    role = column.role or next(iter(evaluated.roles))
    if role not in evaluated.roles:
        raise ConfigError(source, [f"no role '{role}'; {nearest(role, evaluated.roles)}"])
    out = folder / "evaluations" / f"{slug(column.name)}.jsonl"
    return PlannedEvaluation(column, evaluated, role, out)


def _read(path: Path, overrides: Sequence[str], words: Mapping[str, str]) -> RunConfig:
    return _parse(read_config(path), str(path), overrides, words)


def _parse(
    data: dict[str, Any],
    source: str,
    overrides: Sequence[str],
    words: Mapping[str, str],
    met: Collection[str] = (),
) -> RunConfig:
    """Parse a config. Drop `met` co-players that no role or judge uses."""
    problems = apply_overrides(data, overrides)
    named = {*_strings_in([data.get("roles"), data.get("judge")])}
    for name in met:
        if name not in named and isinstance(data["policies"], dict):
            data["policies"].pop(name, None)
    problems += [
        f"unknown placeholder '{{{word}}}'; {nearest(word, words)}"
        for word in dict.fromkeys(WORD.findall("\n".join(_strings_in(data))))
        if word not in words
    ]
    return parse_config(_filled(data, words), source, problems)


def _strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(inner)


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    """The data with placeholders replaced in every string."""
    if isinstance(value, str):
        return WORD.sub(lambda found: words.get(found[1], found[0]), value)
    if isinstance(value, dict):
        return {key: _filled(inner, words) for key, inner in value.items()}
    return [_filled(inner, words) for inner in value] if isinstance(value, list) else value
