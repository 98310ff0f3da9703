"""Results of an experiment, with the cost of each number.

Every arm and seed has a `result.json` in its run folder. It is written after training and after
each evaluation, so an interrupted experiment resumes without repeating work.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from pettingllms.config.renames import EXPERIMENT_NAMES, migrate_metrics
from pettingllms.experiments.experiment import Figure, Model
from pettingllms.experiments.plan import Plan, PlannedArm, PlannedEvaluation
from pettingllms.experiments.scoring import EXPLOITABILITY_METRICS, Measured
from pettingllms.runs.folder import CONFIG_FILE, RunFolder, write_whole
from pettingllms.runs.trackers import METRICS_FILE, metric_rows

FILE, BASIS = "result.json", "basis.json"
TOKENS = "rollout/total_tokens"


@dataclass(frozen=True, slots=True)
class Training:
    """Cost of training an arm."""

    num_steps: int
    num_tokens: int
    """Tokens sampled by trained policies, including continuations."""
    seconds: float
    """Time of all steps, without engine start-up."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A measured value, its exact specification, and its duration."""

    spec: str
    """The measure, the role, and the overrides of the evaluation."""
    measured: Measured
    seconds: float


@dataclass(slots=True)
class Result:
    """The result of one arm and seed."""

    arm: str
    seed: int
    command: str
    machine: dict[str, Any]
    versions: dict[str, str]
    training: Training | None = None
    """None for untrained arms."""
    evaluations: dict[str, Evaluated] = field(default_factory=dict)
    plan: str = ""
    """Digest of the preregistered plan that the seed started with; empty: it had none."""

    def write(self, folder: Path) -> None:
        """Write the result into its run folder."""
        write_whole(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The result in a run folder, if it exists."""
        if not (folder / FILE).is_file():
            return None
        return cls.from_json(json.loads((folder / FILE).read_text(encoding="utf-8")))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Parse a result; names of version 0.1 are replaced with their successors."""
        training = data["training"] and Training(**data["training"])
        evaluations = {
            EXPERIMENT_NAMES.get(name, name): _evaluated(one)
            for name, one in data["evaluations"].items()
        }
        arm = EXPERIMENT_NAMES.get(data["arm"], data["arm"])
        update = {"arm": arm, "training": training, "evaluations": evaluations}
        return cls(**{**data, **update})

    def has(self, cell: PlannedEvaluation) -> bool:
        """Whether a cell of the table is done with the same specification."""
        found = self.evaluations.get(cell.spec.name)
        return found is not None and found.spec == cell_spec(cell)

    def problem(self, arm: PlannedArm) -> str:
        """Why the result does not belong to an arm with the same config; empty if it does."""
        trained = self.training is not None
        same = trained == arm.spec.trained
        return "" if same else f"was made with trained = {str(trained).lower()}"


@dataclass(frozen=True, slots=True)
class Curve:
    """The learning curve of one arm and seed."""

    x: list[float]
    y: list[float]


def _evaluated(data: Mapping[str, Any]) -> Evaluated:
    measured = dict(data["measured"])
    if "num_plays" in measured:  # version 0.1
        measured["num_episodes"] = measured.pop("num_plays")
    spec = data["spec"] if "spec" in data else data["asked"]
    return Evaluated(spec, Measured(**measured), data["seconds"])


def cell_spec(cell: PlannedEvaluation) -> str:
    """The specification of a cell; the arm's config is compared separately."""
    what = " ".join([cell.spec.measure, cell.spec.metric]).strip()
    return ", ".join([f"{what} of {cell.role}", *cell.spec.set])


def has_same_config(arm: PlannedArm) -> bool:
    """Whether the run in the arm's folder has the arm's config."""
    folder = RunFolder(arm.folder)
    return (arm.folder / CONFIG_FILE).is_file() and arm.config.matches(folder.config())


def is_based_on(plan: Plan, basis: str) -> bool:
    """Whether the existing models of a seed, if any, were made from the same basis."""
    path = plan.folder / BASIS
    return not path.is_file() or is_same_basis(plan, path.read_text(encoding="utf-8"), basis)


def is_same_basis(plan: Plan, one: str, other: str) -> bool:
    """Whether two bases give the same models."""
    return _parse_basis(plan, one) == _parse_basis(plan, other)


def _parse_basis(plan: Plan, basis: str) -> dict[str, Any]:
    """A basis with parsed configs; for tokenizer texts only the environment matters. New options of
    models and configs get their defaults."""
    parts: dict[str, Any] = json.loads(basis)
    # Version 0.1 wrote its default, float32, where `auto` is written now.
    starts = [plan.read(text).for_device("cpu") for text in parts["warm_starts"]]
    verifiers = [plan.read(text).for_device("cpu") for text in parts.get("verifiers", [])]
    texts = [plan.read(text).env for text in parts["texts"]]
    model = {**Model().model_dump(), **parts["model"]}
    made = {"model": model, "warm_starts": starts, "verifiers": verifiers, "texts": texts}
    return {**parts, **made}


_NUMBERS = re.compile(r"\[\s[-+\d.,eE\s]*\]")


def to_json(numbers: dict[str, Any]) -> str:
    """Indented JSON with each list of numbers on one line: a value per test task is many."""
    text = json.dumps(numbers, indent=1)
    return _NUMBERS.sub(lambda found: " ".join(found[0].split()), text)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run, one row per step."""
    path = folder / METRICS_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [migrate_metrics(row) for row in metric_rows(lines)]


def training_cost(rows: list[dict[str, Any]]) -> Training:
    """Total cost of the steps of a run."""
    last = rows[-1] if rows else {"step": 0, TOKENS: 0}
    seconds = sum(row.get("time/step") or 0.0 for row in rows)
    return Training(last["step"], int(last[TOKENS]), seconds)


def figure_metric(figure: Figure, arm: PlannedArm) -> str:
    """The key of the metric in the figure for an arm."""
    role = figure.role or next(iter(arm.config.roles))
    return figure.y if "/" in figure.y else f"roles/{role}/{figure.y}"


def figure_key(figure: Figure) -> dict[str, Any]:
    """The options that a figure's curves depend on."""
    points = "end of step" if is_after_step(figure.y) else "start of step"
    return {**figure.model_dump(include={"y", "role", "x", "smooth"}), "points": points}


def is_after_step(metric: str) -> bool:
    """Whether a metric describes the weights after a step, not those that sampled its rollouts."""
    name = metric.rpartition("/")[2]
    return name.startswith(("eval_", "anchor_")) or name in (*EXPLOITABILITY_METRICS, "legal_share")


def x_values(rows: Iterable[Mapping[str, Any]], metric: str, key: str) -> list[float]:
    """The x values of the rows with a metric, in steps or tokens.

    The rollouts of a step are sampled with the weights before it, so those of step 1 are at 0."""
    places, before = [], 0.0
    for row in rows:
        here = float(row.get(key, before))
        if row.get(metric) is not None:
            places.append(here if is_after_step(metric) else before)
        before = here
    return places


def make_curve(rows: Iterable[dict[str, Any]], metric: str, figure: Figure) -> Curve:
    """The points of a run with the metric, each a running mean."""
    key = TOKENS if figure.x == "tokens" else "step"
    rows = list(rows)
    values = [row[metric] for row in rows if row.get(metric) is not None]
    smooth = [
        sum(some) / len(some)
        for at in range(len(values))
        if (some := values[max(0, at + 1 - figure.smooth) : at + 1])
    ]
    return Curve(x_values(rows, metric, key), smooth)
