"""An experiment with one seed, laid out: which runs there are, and in which folders.

All configurations are read before anything is run, so a typo in the last column fails at once and
not after a night.
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
    read_toml,
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
from pettingllms.experiments.scoring import EXPLOITABILITY_METRICS
from pettingllms.models import find_model
from pettingllms.runs.folder import slug

SEED = "seed-"
OF_TRAINING: Any = {
    "league": True,
    "co_players": True,
    "train": {"alternate"},
    "policies": {"__all__": {"join_step"}},
}
"""Whom an arm meets and who learns when, which is nothing to an evaluation."""
WORD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for on the command line."""

    experiment: Experiment
    source: Path
    """The experiment's folder."""
    out: Path
    command: str
    """That reproduces all of it."""
    floors: Sequence[Floor] = ()
    """What must be reached."""
    joined: Sequence[Path] = ()
    """Files of numbers from elsewhere, whose seeds are added to the table."""


@dataclass(frozen=True, slots=True)
class PlannedEvaluation:
    """A cell of the table."""

    spec: Evaluation
    config: RunConfig
    role: str
    out: Path
    """The file of its episodes."""


@dataclass(frozen=True, slots=True)
class PlannedArm:
    """A row of the table, for one seed."""

    spec: Arm
    config: RunConfig
    folder: Path
    """The folder of its run."""
    evaluations: list[PlannedEvaluation]

    def configs(self) -> list[RunConfig]:
        """Of its training, and of each evaluation, which may name others to play against."""
        return [self.config, *(cell.config for cell in self.evaluations)]


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A warm start: its run, and the model that comes of it."""

    spec: WarmStart
    config: RunConfig
    folder: Path
    model: Path


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one seed runs."""

    seed: int
    folder: Path
    model: Path
    """The folder of the first model."""
    starts: list[PlannedStart] = field(default_factory=list)
    arms: list[PlannedArm] = field(default_factory=list)

    def envs(self) -> list[EnvConfig]:
        """The environments that are played, each once."""
        return [config.env for config in self._players()]

    def models_in(self, *configs: RunConfig) -> list[Path]:
        """Those of this seed's models that configurations name."""
        text = "\n".join(map(to_toml, configs))
        models = [self.model, *(start.model for start in self.starts)]
        return [model for model in models if re.search(rf"{re.escape(str(model))}(?![\w-])", text)]

    def _players(self) -> list[RunConfig]:
        """A configuration for each environment that is played."""
        configs = [*(arm.config for arm in self.arms), *(start.config for start in self.starts)]
        return list({repr(config.env): config for config in configs}.values())

    def basis(self, model: Model) -> str:
        """All that the models which arms start from are made of, as JSON."""
        starts = [self.written(start.config) for start in self.starts]
        envs = [self.written(config) for config in self._players()] if not model.name else []
        parts = {"model": model.model_dump(), "texts": envs, "warm_starts": starts}
        return json.dumps(parts, indent=1)

    def written(self, config: RunConfig) -> str:
        """A configuration as TOML in which no folder of this machine stands."""
        text = to_toml(config)
        return text.replace(str(self.folder), "{seed}").replace(str(self.model), "{model}")

    def read(self, text: str) -> RunConfig:
        """What was written so, maybe elsewhere: an option that came later has its default."""
        local = text.replace("{model}", str(self.model)).replace("{seed}", str(self.folder))
        return parse_config(migrate(tomllib.loads(local)))


def make_plan(order: Order, seed: int) -> Plan:
    """Read every configuration of the experiment, with its words filled in.

    The folders end up in configurations, so they hold from anywhere.
    """
    experiment, source = order.experiment, order.source
    top = order.out.resolve() / f"{SEED}{seed}"
    made = not experiment.model.name
    plan = Plan(seed, top, top / MODEL if made else find_model(experiment.model.name))
    words = {MODEL: str(plan.model)}
    for start in experiment.warm_starts:
        config = _read(source / start.config, [*start.set, f"seed={seed}"], words)
        model = top / "models" / slug(start.name)
        plan.starts.append(PlannedStart(start, config, top / slug(f"warm {start.name}"), model))
        words[start.name] = str(model)
    for arm in experiment.arms:
        config = _read(source / arm.config, [*arm.set, f"seed={seed}"], words)
        if arm.trained and not config.trained_policies():
            raise ConfigError(arm.name, ["no policy learns; set trained = false, or train one"])
        folder = top / slug(arm.name)
        cells = [_cell(config, column, folder, words) for column in experiment.evaluations]
        plan.arms.append(PlannedArm(arm, config, folder, cells))
    _keep_needed(plan)
    return plan


def _keep_needed(plan: Plan) -> None:
    """Leave out warm starts that nothing begins with or plays against."""
    readers = [config for arm in plan.arms for config in arm.configs()]
    for start in reversed(plan.starts[:]):
        if start.model in plan.models_in(*readers):
            readers.append(start.config)
        else:
            plan.starts.remove(start)


def planned_seeds(out: Path) -> list[int]:
    """Seeds that something was begun with."""
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
        raise ConfigError(source, [f"no role is called '{role}'; {nearest(role, evaluated.roles)}"])
    out = folder / "evaluations" / f"{slug(column.name)}.jsonl"
    return PlannedEvaluation(column, evaluated, role, out)


def _read(path: Path, overrides: Sequence[str], words: Mapping[str, str]) -> RunConfig:
    return _parse(read_toml(path), str(path), overrides, words)


def _parse(
    data: dict[str, Any],
    source: str,
    overrides: Sequence[str],
    words: Mapping[str, str],
    met: Collection[str] = (),
) -> RunConfig:
    """The run; policies that were only `met` in training are in it if a role or judge has them."""
    problems = apply_overrides(data, overrides)
    named = {*_strings_in([data.get("roles"), data.get("judge")])}
    for name in met:
        if name not in named and isinstance(data["policies"], dict):
            data["policies"].pop(name, None)
    problems += [
        f"nothing is called '{{{word}}}' here; {nearest(word, words)}"
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
    """The data with `{word}` replaced in every string."""
    if isinstance(value, str):
        return WORD.sub(lambda found: words.get(found[1], found[0]), value)
    if isinstance(value, dict):
        return {key: _filled(inner, words) for key, inner in value.items()}
    return [_filled(inner, words) for inner in value] if isinstance(value, list) else value
