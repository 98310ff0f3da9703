"""What an experiment is: `experiment.toml`, a small file beside the runs that it puts together."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from pettingllms.config import Section, problems_in, read_toml
from pettingllms.errors import ConfigError, nearest
from pettingllms.experiments.scoring import Measure
from pettingllms.runs.folder import slug
from pettingllms.vision.support import FAMILIES

FILE = "experiment.toml"
MODEL = "model"
"""The word that stands for the first model."""


class Model(Section):
    """The model that everything starts from: a tiny one, made anew for each seed, or one by name.

    The tokenizer of a tiny one is made from what the experiment's environments say.
    """

    name: str = ""
    """Folder or hub name of a model that is there; empty: a tiny one is made."""
    architecture: Literal[
        "qwen3", "llama", "qwen2_5_vl", "qwen3_vl", "idefics3", "smolvlm", "llava"
    ] = "qwen3"
    """Of a tiny one; all but the first two see."""
    hidden_size: int = Field(default=128, ge=64, multiple_of=64)
    """Width of a tiny one."""
    num_layers: int = Field(default=2, ge=1)
    """Layers of a tiny one."""
    vocab_size: int = Field(default=512, ge=260)
    """Tokens that a tiny one has at most."""
    mlp_size: int | None = Field(default=None, ge=1)
    """Width of a tiny one's inner layers; left out: 8 times hidden_size."""
    head_dim: int = Field(default=32, ge=8)
    """Width of a tiny one's attention heads; vLLM wants 32 or more."""
    symbols: bool = False
    """One token for each symbol of a board, in a tiny one."""

    @property
    def supports_images(self) -> bool:
        """Whether a tiny one sees."""
        return self.architecture in FAMILIES

    @model_validator(mode="after")
    def _either(self) -> Self:
        chosen = {"mlp_size", "head_dim"} & self.model_fields_set
        if self.supports_images and chosen:
            rest = ", ".join(sorted(chosen))
            raise ValueError(f"a tiny model that sees has no such choice, so leave out {rest}")
        if self.name and self.model_fields_set != {"name"}:
            rest = ", ".join(sorted(self.model_fields_set - {"name"}))
            raise ValueError(f"'{self.name}' is there already, so leave out {rest}")
        return self


class WarmStart(Section):
    """A model that `pettingllms sft` has taught, for arms to start from."""

    name: str = "start"
    """`{start}` in a configuration stands for the folder of the model that this gives."""
    config: str
    """A configuration, in the experiment's folder, with one policy that learns and an [sft]."""
    set: list[str] = Field(default_factory=list)
    """Overrides, as on the command line."""


class Arm(Section):
    """A row of the table: a run, or a configuration that is only evaluated."""

    name: str
    """As the table has it."""
    config: str
    """A run's configuration, in the experiment's folder."""
    set: list[str] = Field(default_factory=list)
    """Overrides, as on the command line."""
    trained: bool = True
    """False: only evaluated, as a row to compare with."""
    start: str = ""
    """Row with the model that this one starts from, whose value the figure has at 0."""
    about: str = ""
    """What it is, in a sentence, for slides."""


class Evaluation(Section):
    """A column of the table: test tasks played after training, and what is reported of them."""

    name: str
    """As the table has it."""
    set: list[str] = Field(default_factory=list)
    """Overrides on top of the arm's: who else plays, how many tasks."""
    measure: Measure = "success"
    """`success`: share of plays in which the role reached its aim. `loss`: share in which it did
    not and another role did. A play that failed counts against the role in both. `reward`: mean of
    what it was paid. `metric`: mean of what the environment reports under the name `metric`, over
    plays that got so far. `nash_conv`, `regret`: how far the role's policy is from perfect play,
    worked out over the whole game."""
    metric: str = ""
    """Name of the metric, where that is what is measured."""
    share: bool = False
    """Whether the metric is a share, to be shown as a percentage."""
    role: str = ""
    """Whose; empty: the arm's first role."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if bool(self.metric) != (self.measure == "metric"):
            raise ValueError('measure = "metric" and metric = "NAME" go together')
        return self

    @property
    def is_share(self) -> bool:
        """Whether it is a share of plays, and no number with a unit of its own."""
        return self.measure in ("success", "loss") or self.share


class Figure(Section):
    """What is drawn: the course of training, the evaluations as bars, or one above the other."""

    y: str = "reward"
    """A metric of the run: a key under roles/ROLE/, such as reward or eval_success, or a whole key,
    such as policies/shared/entropy. Empty: no lines."""
    role: str = ""
    """Whose metric; empty: the arm's first role."""
    y_label: str = ""
    """As the axis has it; empty: the metric."""
    x: Literal["tokens", "step"] = "tokens"
    """What the axis below counts: sampled tokens, or steps."""
    start: str = ""
    """Evaluation that measures what `y` does, for a value before training: it is drawn at 0 for
    arms that have a `start`. Metrics of rollouts have a point at 0 by themselves."""
    smooth: int = Field(default=1, ge=1)
    """Steps that a point is the mean of."""
    bars: list[str] = Field(default_factory=list)
    """Evaluations to draw as bars."""


class Floor(Section):
    """What a quick run must reach: this goes red when learning breaks."""

    arm: str
    """Row."""
    evaluation: str
    """Column."""
    at_least: float | None = None
    """The mean over seeds may not be below."""
    at_most: float | None = None
    """The mean over seeds may not be above."""

    @model_validator(mode="after")
    def _some_bound(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give at_least or at_most")
        return self


class SmokeRun(Section):
    """The same experiment in minutes, for `--quick`."""

    set: list[str] = Field(default_factory=list)
    """Overrides of every arm and evaluation, on top of their own."""
    warm_set: list[str] = Field(default_factory=list)
    """Overrides of every warm start, on top of its own."""
    seeds: list[int] = Field(default=[1], min_length=1)
    """In place of the experiment's."""
    arms: list[str] = Field(default_factory=list)
    """Rows to run; empty: all."""
    evaluations: list[str] = Field(default_factory=list)
    """Columns to run; empty: all."""
    floors: list[Floor] = Field(default_factory=list)
    """What must be reached; else the command ends with exit code 1."""


class Repetition(Section):
    """How near to the shipped results a full run must come: this goes red when results change.

    A cell may differ by `num_errors` standard errors of the difference, and by `min_share` or
    `min_range` in any case."""

    num_errors: float = Field(default=4.0, gt=0)
    """Standard errors of the difference between two means, from the scatter of the shipped seeds
    and from the number of test tasks."""
    min_share: float = Field(default=0.03, ge=0, le=1)
    """Allowed difference of a share in any case."""
    min_range: float = Field(default=0.15, ge=0, le=1)
    """Allowed difference of any other number in any case, as a share of the range that the shipped
    arms span in its column."""


class Experiment(Section):
    """A question, the runs that answer it, and how the answer is shown."""

    title: str
    """Of table and figure."""
    question: str
    """One sentence."""
    seeds: list[int] = Field(default=[1, 2, 3], min_length=1)
    """Every arm is run once with each."""
    model: Model = Model()
    """What everything starts from; `{model}` in a configuration."""
    warm_starts: list[WarmStart] = Field(default_factory=list)
    """In this order; each may start from those before it."""
    arms: list[Arm] = Field(min_length=1)
    """Rows of the table."""
    evaluations: list[Evaluation] = Field(min_length=1)
    """Columns of the table."""
    figure: Figure = Figure()
    """What is drawn."""
    limits: list[str] = Field(default_factory=list)
    """What it does not show, a sentence each, for slides."""
    repetition: Repetition = Repetition()
    """How near to the shipped results the full form must come."""
    quick: SmokeRun = SmokeRun()
    """For `--quick`."""

    def problems(self) -> Iterator[str]:
        """Names that are there twice, or that nothing has."""
        arms = [arm.name for arm in self.arms]
        columns = [evaluation.name for evaluation in self.evaluations]
        starts = [start.name for start in self.warm_starts]
        yield from _twice("arms", arms)
        yield from _twice("evaluations", columns)
        yield from _twice("warm_starts", [MODEL, *starts])
        yield from _unknown("quick.arms", self.quick.arms, arms)
        yield from _unknown("quick.evaluations", self.quick.evaluations, columns)
        floors = self.quick.floors
        run, measured = self.quick.arms or arms, self.quick.evaluations or columns
        yield from _unknown("quick.floors", (floor.arm for floor in floors), run)
        yield from _unknown("quick.floors", (floor.evaluation for floor in floors), measured)
        yield from _unknown("figure.bars", self.figure.bars, columns)
        yield from _unknown("figure.start", filter(None, [self.figure.start]), columns)
        yield from _unknown("arms.start", (arm.start for arm in self.arms if arm.start), arms)

    def quickened(self) -> Self:
        """The same experiment as `--quick` runs it."""
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
        kept = [column.name for column in evaluations]
        bars = [name for name in self.figure.bars if name in kept]
        figure = self.figure.model_copy(update={"bars": bars or kept})
        return self.model_copy(
            update={
                "seeds": quick.seeds,
                "warm_starts": starts,
                "arms": arms,
                "evaluations": evaluations,
                "figure": figure,
            }
        )


def load_experiment(folder: Path) -> Experiment:
    """Read the experiment of a folder; raise one ConfigError with every problem found."""
    path = folder / FILE
    try:
        experiment = Experiment.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigError(str(path), problems_in(error)) from None
    if problems := list(experiment.problems()):
        raise ConfigError(str(path), problems)
    return experiment


def find_experiment(name: str, root: Path) -> Path:
    """The folder of an experiment given by its name or by its path."""
    for folder in (root / name, Path(name)) if name else ():
        if (folder / FILE).is_file():
            return folder
    known = sorted(path.parent.name for path in root.glob(f"*/{FILE}"))
    if not known:
        what = f"there are no experiments in {root}; run this in a clone's folder"
        raise ConfigError(name or "reproduce", [what])
    if not name:
        raise ConfigError("reproduce", [f"name an experiment: {', '.join(known)}"])
    raise ConfigError(name, [f"no experiment in {root} is called so; {nearest(name, known)}"])


def _twice(where: str, names: Iterable[str]) -> Iterator[str]:
    """Names that are one folder would write over each other."""
    counts = Counter(slug(name) for name in names)
    for name, count in counts.items():
        if count > 1 or not name:
            yield f"{where}: '{name}' is there {count} times as a folder; give each a name"


def _unknown(where: str, names: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    there = list(known)
    for name in names:
        if name not in there:
            yield f"{where}: nothing is called '{name}'; {nearest(name, there)}"
