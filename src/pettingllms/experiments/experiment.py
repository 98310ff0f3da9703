"""Config of an experiment: `experiment.toml`, next to the run configs that it combines."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from pettingllms.config import Section, problems_in, read_toml
from pettingllms.errors import ConfigError, nearest
from pettingllms.experiments.scoring import Measure
from pettingllms.experiments.stages import Export, VerifierStage, stage_problems
from pettingllms.runs.folder import slug
from pettingllms.vision.families import FAMILIES

FILE = "experiment.toml"
MODEL = "model"
"""Placeholder of the base model."""


class Model(Section):
    """The base model: a tiny one, created for each seed, or an existing one by name.

    The tokenizer of a tiny model is trained on the prompts of the experiment's environments.
    """

    name: str = ""
    """Folder or hub name of an existing model; empty: create a tiny one."""
    architecture: Literal[
        "qwen3", "llama", "qwen2_5_vl", "qwen3_vl", "idefics3", "smolvlm", "llava"
    ] = "qwen3"
    """Architecture of a tiny model; all but the first two are VLMs."""
    hidden_size: int = Field(default=128, ge=64, multiple_of=64)
    """Hidden size of a tiny model."""
    num_layers: int = Field(default=2, ge=1)
    """Number of layers of a tiny model."""
    vocab_size: int = Field(default=512, ge=260)
    """Maximum vocabulary size of a tiny model."""
    mlp_size: int | None = Field(default=None, ge=1)
    """MLP size of a tiny model; default: 8 times hidden_size."""
    head_dim: int = Field(default=32, ge=8)
    """Attention head size of a tiny model; vLLM needs 32 or more."""
    symbols: bool = False
    """Use one token per board symbol in a tiny model."""
    number_digits: int = Field(default=1, ge=1, le=3)
    """With `symbols`: numbers of up to this many digits are one token each in a tiny model."""

    @property
    def supports_images(self) -> bool:
        """Whether a tiny model is a VLM."""
        return self.architecture in FAMILIES

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        chosen = {"mlp_size", "head_dim", "number_digits"} & self.model_fields_set
        if self.supports_images and chosen:
            rest = ", ".join(sorted(chosen))
            raise ValueError(f"a tiny VLM does not support {rest}; remove it")
        if self.number_digits > 1 and not self.symbols:
            raise ValueError("number_digits needs symbols = true, because other digits are single")
        if self.name and self.model_fields_set != {"name"}:
            rest = ", ".join(sorted(self.model_fields_set - {"name"}))
            raise ValueError(f"'{self.name}' is an existing model; remove {rest}")
        return self


class WarmStart(Section):
    """A model trained with `pettingllms sft`, which arms start from."""

    name: str = "start"
    """`{start}` in a config is replaced with the folder of the resulting model."""
    config: str
    """A config in the experiment's folder with one trained policy and an [sft] section."""
    set: list[str] = Field(default_factory=list)
    """Overrides, as on the command line."""


class Arm(Section):
    """A row of the table: a training run, or a config that is only evaluated."""

    name: str
    """Name in the table."""
    config: str
    """A run config in the experiment's folder."""
    set: list[str] = Field(default_factory=list)
    """Overrides, as on the command line."""
    trained: bool = True
    """False: only evaluate, as a baseline."""
    start: str = ""
    """Arm with the initial model of this one; the figure shows its value at 0."""
    description: str = ""
    """One sentence for the slides."""


class Evaluation(Section):
    """A column of the table: an evaluation on test tasks after training, and what it measures."""

    name: str
    """Name in the table."""
    set: list[str] = Field(default_factory=list)
    """Overrides on top of the arm's, such as other players or the number of tasks."""
    measure: Measure = "success"
    """`success`: success rate of the role. `loss`: share of episodes in which the role did not
    succeed and another role did. Failed episodes count against the role in both. `majority`: share
    of tasks whose most common answer over eval.num_samples episodes is correct, at the cost of all
    of them. `reward`: mean
    reward of the role. `metric`: mean of the environment metric `metric`, over episodes that report
    it. `nash_conv`, `regret`: exploitability of the role's policy, computed exactly over the whole
    game."""
    metric: str = ""
    """Name of the metric, with measure = "metric"."""
    share: bool = False
    """Show the metric as a percentage."""
    role: str = ""
    """Evaluated role; empty: the arm's first role."""

    @model_validator(mode="after")
    def _check_metric(self) -> Self:
        if bool(self.metric) != (self.measure == "metric"):
            raise ValueError('measure = "metric" needs metric = "NAME", and the other way around')
        return self

    @property
    def is_share(self) -> bool:
        """Whether the value is a share of episodes."""
        return self.measure in ("success", "majority", "loss") or self.share


class Figure(Section):
    """The figure: learning curves, evaluations as bars, or both."""

    y: str = "reward"
    """A metric of the run: a key under roles/ROLE/, such as reward or eval_success, or a full key,
    such as policies/shared/entropy. Empty: no learning curves."""
    role: str = ""
    """Role of the metric; empty: the arm's first role."""
    y_label: str = ""
    """Axis label; empty: the metric."""
    x: Literal["tokens", "step"] = "tokens"
    """Unit of the x axis: sampled tokens or training steps."""
    start: str = ""
    """Evaluation that measures the same as `y`: its value before training is drawn at 0 for arms
    with a `start`. Rollout metrics have a point at 0 already."""
    smooth: int = Field(default=1, ge=1)
    """Number of steps averaged per point."""
    bars: list[str] = Field(default_factory=list)
    """Evaluations to draw as bars."""


class Floor(Section):
    """A bound that a smoke run must reach; it fails when learning is broken."""

    arm: str
    """Arm name."""
    evaluation: str
    """Evaluation name."""
    at_least: float | None = None
    """Lower bound on the mean over seeds."""
    at_most: float | None = None
    """Upper bound on the mean over seeds."""

    @model_validator(mode="after")
    def _check_bound(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("set at_least or at_most")
        return self


class SmokeRun(Section):
    """The minutes-long form of the experiment for `--quick`."""

    set: list[str] = Field(default_factory=list)
    """Additional overrides for every arm and evaluation."""
    warm_set: list[str] = Field(default_factory=list)
    """Additional overrides for every warm start."""
    verifier_set: list[str] = Field(default_factory=list)
    """Additional overrides for every verifier."""
    seeds: list[int] = Field(default=[1], min_length=1)
    """Seeds of the smoke run."""
    arms: list[str] = Field(default_factory=list)
    """Arms to run; empty: all."""
    evaluations: list[str] = Field(default_factory=list)
    """Evaluations to run; empty: all."""
    floors: list[Floor] = Field(default_factory=list)
    """Bounds to reach; otherwise the command exits with code 1."""


class Repetition(Section):
    """Tolerance between a full run and the shipped results; it fails when results change.

    A cell may differ by `num_errors` standard errors of the difference, and by `min_share` or
    `min_range` in any case."""

    num_errors: float = Field(default=4.0, gt=0)
    """Allowed standard errors of the difference between two means, estimated from the shipped
    seeds and the number of test tasks."""
    min_share: float = Field(default=0.03, ge=0, le=1)
    """Difference of a share that is always allowed."""
    min_range: float = Field(default=0.15, ge=0, le=1)
    """Difference of any other number that is always allowed, as a fraction of the range of the
    shipped arms in its column."""


class Experiment(Section):
    """A question, the runs that answer it, and how the results are shown."""

    title: str
    """Title of the table and figure."""
    question: str
    """One sentence."""
    seeds: list[int] = Field(default=[1, 2, 3], min_length=1)
    """Every arm runs once per seed."""
    model: Model = Model()
    """The base model; `{model}` in a config."""
    warm_starts: list[WarmStart] = Field(default_factory=list)
    """Warm starts in order; each may start from an earlier one."""
    verifiers: list[VerifierStage] = Field(default_factory=list)
    """Verifiers that are trained after the warm starts."""
    exports: list[Export] = Field(default_factory=list)
    """Trained policies that other arms play with."""
    arms: list[Arm] = Field(min_length=1)
    """Rows of the table."""
    evaluations: list[Evaluation] = Field(min_length=1)
    """Columns of the table."""
    figure: Figure = Figure()
    """The figure."""
    limits: list[str] = Field(default_factory=list)
    """Limitations for the slides, one sentence each."""
    repetition: Repetition = Repetition()
    """Tolerance between a full run and the shipped results."""
    quick: SmokeRun = SmokeRun()
    """The smoke run for `--quick`."""

    def problems(self) -> Iterator[str]:
        """Duplicate and unknown names."""
        arms = [arm.name for arm in self.arms]
        columns = [evaluation.name for evaluation in self.evaluations]
        starts = [start.name for start in self.warm_starts]
        yield from _duplicates("arms", arms)
        yield from _duplicates("evaluations", columns)
        yield from _duplicates("warm_starts", [MODEL, *starts])
        yield from stage_problems(self.verifiers, self.exports, [MODEL, *starts])
        yield from _unknown("exports.arm", (one.arm for one in self.exports), arms)
        yield from _unknown("quick.arms", self.quick.arms, arms)
        yield from _unknown("quick.evaluations", self.quick.evaluations, columns)
        floors = self.quick.floors
        run, measured = self.quick.arms or arms, self.quick.evaluations or columns
        yield from _unknown("quick.floors", (floor.arm for floor in floors), run)
        yield from _unknown("quick.floors", (floor.evaluation for floor in floors), measured)
        yield from _unknown("figure.bars", self.figure.bars, columns)
        yield from _unknown("figure.start", filter(None, [self.figure.start]), columns)
        yield from _unknown("arms.start", (arm.start for arm in self.arms if arm.start), arms)

    def smoke_run(self) -> Self:
        """The experiment in its `--quick` form."""
        quick = self.quick
        arms = [
            arm.model_copy(update={"set": [*arm.set, *quick.set]})
            for arm in self.arms
            if arm.name in (quick.arms or [arm.name])
        ]
        evaluations = [
            column.model_copy(update={"set": [*column.set, *quick.set]})
            for column in self.evaluations
            if column.name in (quick.evaluations or [column.name])
        ]
        starts = [
            start.model_copy(update={"set": [*start.set, *quick.warm_set]})
            for start in self.warm_starts
        ]
        verifiers = [
            one.model_copy(update={"set": [*one.set, *quick.verifier_set]})
            for one in self.verifiers
        ]
        run = [arm.name for arm in arms]
        kept = [column.name for column in evaluations]
        bars = [name for name in self.figure.bars if name in kept]
        figure = self.figure.model_copy(update={"bars": bars or kept})
        return self.model_copy(
            update={
                "seeds": quick.seeds,
                "warm_starts": starts,
                "verifiers": verifiers,
                "exports": [one for one in self.exports if one.arm in run],
                "arms": arms,
                "evaluations": evaluations,
                "figure": figure,
            }
        )


def load_experiment(folder: Path) -> Experiment:
    """Load the experiment of a folder; raise one ConfigError with all problems."""
    path = folder / FILE
    try:
        experiment = Experiment.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigError(str(path), problems_in(error)) from None
    if problems := list(experiment.problems()):
        raise ConfigError(str(path), problems)
    return experiment


def find_experiment(name: str, root: Path) -> Path:
    """The folder of an experiment, given by name or path."""
    for folder in (root / name, Path(name)) if name else ():
        if (folder / FILE).is_file():
            return folder
    known = sorted(path.parent.name for path in root.glob(f"*/{FILE}"))
    if not known:
        what = f"no experiments in {root}; give their folder with --experiments"
        raise ConfigError(name or "reproduce", [what])
    if not name:
        raise ConfigError("reproduce", [f"name an experiment: {', '.join(known)}"])
    raise ConfigError(name, [f"no such experiment in {root}; {nearest(name, known)}"])


def _duplicates(where: str, names: Iterable[str]) -> Iterator[str]:
    """Names with the same folder name, which would overwrite each other."""
    counts = Counter(slug(name) for name in names)
    for name, count in counts.items():
        if count > 1 or not name:
            yield f"{where}: '{name}' occurs {count} times as a folder name; use unique names"


def _unknown(where: str, names: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    there = list(known)
    for name in names:
        if name not in there:
            yield f"{where}: unknown name '{name}'; {nearest(name, there)}"
