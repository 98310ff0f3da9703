"""The preregistered plan of an experiment: `plan.toml`, written before its runs.

It fixes what is compared, by which number, over which seeds, and with which budget, and it records
where the settings were tuned. Each seed keeps the digest of the plan that it started with, so the
report can tell planned results from others.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from pettingllms.config import RunConfig, Section, problems_in, read_toml
from pettingllms.config.policies import TRAINED_KINDS
from pettingllms.errors import ConfigError, nearest
from pettingllms.experiments.experiment import Experiment
from pettingllms.runs.folder import write_whole

if TYPE_CHECKING:
    from pettingllms.experiments.plan import Plan, PlannedArm

FILE, DIGEST = "plan.toml", "plan.sha256"


class Contrast(Section):
    """A planned difference between two arms."""

    claim: str
    """The claim that it tests, in one sentence."""
    arm: str
    """The arm that the claim favors."""
    minus: str
    """The arm to subtract."""
    evaluation: str = ""
    """Evaluation of `arm`; empty: the primary one."""
    minus_evaluation: str = ""
    """Evaluation of `minus`, such as a majority vote; empty: the same as of `arm`."""


class Pilot(Section):
    """A trial that decided a setting."""

    seeds: list[int] = Field(min_length=1)
    """Its seeds; none is a seed of the table."""
    first_task: int = Field(ge=0)
    """First test task of its evaluation."""
    num_tasks: int = Field(ge=1)
    """Number of test tasks; none is a task of the table."""
    tried: str
    """What was tried."""
    found: str
    """What was found and decided."""


class Preregistration(Section):
    """What is compared, decided before the runs."""

    date: date
    """Day on which the plan was fixed."""
    primary: str
    """The evaluation that decides."""
    seeds: list[int] = Field(min_length=1)
    """Planned seeds; those of experiment.toml."""
    max_tokens: int = Field(ge=1)
    """Sampled tokens of every trained arm, including continuations."""
    settings: str
    """Where the settings come from and what they were tuned on."""
    deviations: str = ""
    """Where the runs were planned to differ from a design that one would prefer, and why."""
    contrasts: list[Contrast] = Field(min_length=1)
    """Planned differences; every other difference is exploratory."""
    pilots: list[Pilot] = Field(default_factory=list)
    """Trials before the runs."""

    @property
    def digest(self) -> str:
        """Digest of the content, regardless of comments and layout."""
        text = self.model_dump_json(exclude_defaults=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def evaluations_of(self, contrast: Contrast) -> tuple[str, str]:
        """The evaluations of both arms of a contrast."""
        first = contrast.evaluation or self.primary
        return first, contrast.minus_evaluation or first

    def problems(self, experiment: Experiment) -> Iterator[str]:
        """Names and seeds that the experiment does not have."""
        arms = [arm.name for arm in experiment.arms]
        columns = [column.name for column in experiment.evaluations]
        if self.seeds != experiment.seeds:
            yield f"seeds: are {self.seeds}, but experiment.toml has {experiment.seeds}"
        if used := sorted({*self.seeds} & {seed for one in self.pilots for seed in one.seeds}):
            yield f"pilots: used seeds {used} of the table; use others"
        yield from _unknown("primary", [self.primary], columns)
        for at, contrast in enumerate(self.contrasts):
            where = f"contrasts.{at}"
            yield from _unknown(where, (contrast.arm, contrast.minus), arms)
            yield from _unknown(where, self.evaluations_of(contrast), columns)

    def run_problems(self, plan: "Plan") -> Iterator[str]:
        """Arms of a contrast that differ in budget or start, and pilots on tasks of the table."""
        arms = {arm.spec.name: arm for arm in plan.arms}
        for contrast in self.contrasts:
            pair = [arms[contrast.arm], arms[contrast.minus]]
            trained = [arm for arm in pair if arm.spec.trained]
            for arm in trained:
                if arm.config.train.max_tokens != self.max_tokens:
                    yield (
                        f"'{arm.spec.name}' has train.max_tokens = {arm.config.train.max_tokens}, "
                        f"but the plan has {self.max_tokens}; set one budget"
                    )
            if len({arm.config.learner.decay_tokens for arm in trained}) > 1:
                yield f"{_names(pair)}: set the same learner.decay_tokens in both"
            if len({model for arm in pair for model in _models(arm.config)}) > 1:
                yield f"{_names(pair)}: start from different models; set the same one in both"
        yield from self._task_problems(plan)

    def _task_problems(self, plan: "Plan") -> Iterator[str]:
        for cell in (cell for arm in plan.arms for cell in arm.evaluations):
            first, last = cell.config.eval.first_task, cell.config.eval.num_tasks
            for pilot in self.pilots:
                end = pilot.first_task + pilot.num_tasks
                if pilot.first_task < first + last and first < end:
                    yield f"a pilot used test tasks of '{cell.spec.name}'; set eval.first_task"
                    return


def load_preregistration(folder: Path, experiment: Experiment) -> Preregistration | None:
    """The plan of an experiment's folder, if it has one; ConfigError with all problems."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        found = Preregistration.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigError(str(path), problems_in(error)) from None
    if problems := list(found.problems(experiment)):
        raise ConfigError(str(path), problems)
    return found


def check_runs(preregistration: Preregistration, plan: "Plan") -> None:
    """Raise ConfigError if the runs of a seed do not follow the plan."""
    if problems := list(dict.fromkeys(preregistration.run_problems(plan))):
        raise ConfigError(FILE, problems)


def keep_digest(preregistration: Preregistration, folder: Path) -> str:
    """The digest of the plan that a seed started with; it is written by the first run."""
    path = folder / DIGEST
    if not path.is_file():
        write_whole(path, preregistration.digest)
    return path.read_text(encoding="utf-8").strip()


def _models(config: RunConfig) -> set[str]:
    kinds = (*TRAINED_KINDS, "frozen")
    return {str(one.model) for one in config.policies.values() if one.kind in kinds}  # type: ignore[union-attr]


def _names(pair: Sequence["PlannedArm"]) -> str:
    return " and ".join(f"'{arm.spec.name}'" for arm in pair)


def _unknown(where: str, names: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name not in known:
            yield f"{where}: unknown name '{name}'; {nearest(name, known)}"
