"""What an experiment leaves behind, number by number, each with what it took to get it.

Every arm and seed has a `result.json` in its run's folder: it is written after training and again
after each evaluation, so what is in it is done and is never done twice.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from pettingllms.config.renames import migrate_metrics
from pettingllms.experiments.experiment import Figure
from pettingllms.experiments.plan import Plan, PlannedArm, PlannedEvaluation
from pettingllms.experiments.scoring import EXPLOITABILITY_METRICS, Measured
from pettingllms.runs.folder import CONFIG_FILE, RunFolder, write_whole
from pettingllms.runs.trackers import METRICS_FILE

FILE, BASIS = "result.json", "basis.json"
TOKENS = "rollout/total_tokens"


@dataclass(frozen=True, slots=True)
class Training:
    """What it took to train an arm."""

    num_steps: int
    num_tokens: int
    """Sampled by policies that learn, continuations included."""
    seconds: float
    """Of its steps, without the start of engines."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A number, what exactly was asked for, and how long the answer took."""

    asked: str
    """The measure, the role, and what is set other than in training."""
    measured: Measured
    seconds: float


@dataclass(slots=True)
class Result:
    """One arm with one seed."""

    arm: str
    seed: int
    command: str
    machine: dict[str, Any]
    versions: dict[str, str]
    training: Training | None = None
    """None if nothing was trained."""
    evaluations: dict[str, Evaluated] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Put the result into the folder of its run."""
        write_whole(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The result in the folder of a run, if it has come to one."""
        if not (folder / FILE).is_file():
            return None
        return cls.of(json.loads((folder / FILE).read_text(encoding="utf-8")))

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """The result that was written as this data."""
        data["training"] = data["training"] and Training(**data["training"])
        data["evaluations"] = {
            name: Evaluated(one["asked"], Measured(**one["measured"]), one["seconds"])
            for name, one in data["evaluations"].items()
        }
        return cls(**data)

    def has(self, cell: PlannedEvaluation) -> bool:
        """Whether a cell of the table is done, just as it is asked for now."""
        found = self.evaluations.get(cell.spec.name)
        return found is not None and found.asked == asked(cell)

    def problem(self, arm: PlannedArm) -> str:
        """Why its numbers are none of an arm's with the same configuration; empty if they are."""
        trained = self.training is not None
        same = trained == arm.spec.trained
        return "" if same else f"was made with trained = {str(trained).lower()}"


@dataclass(frozen=True, slots=True)
class Curve:
    """The course of one arm's training with one seed."""

    x: list[float]
    y: list[float]


def asked(cell: PlannedEvaluation) -> str:
    """What a cell asks of an arm, whose own configuration is compared apart from it."""
    what = " ".join([cell.spec.measure, cell.spec.metric]).strip()
    return ", ".join([f"{what} of {cell.role}", *cell.spec.set])


def is_of(arm: PlannedArm) -> bool:
    """Whether the run in the arm's folder is the one that is asked for now."""
    folder = RunFolder(arm.folder)
    return (arm.folder / CONFIG_FILE).is_file() and folder.config() == arm.config


def is_based_on(plan: Plan, basis: str) -> bool:
    """Whether a seed's models are those that would be made now; so they are if there are none."""
    path = plan.folder / BASIS
    return not path.is_file() or is_same_basis(plan, path.read_text(encoding="utf-8"), basis)


def is_same_basis(plan: Plan, one: str, other: str) -> bool:
    """Whether models made of one and of the other are the same."""
    return _made_of(plan, one) == _made_of(plan, other)


def _made_of(plan: Plan, basis: str) -> dict[str, Any]:
    """Configurations as they are read; of those that only play, the environment counts."""
    parts: dict[str, Any] = json.loads(basis)
    starts = [plan.read(text) for text in parts["warm_starts"]]
    return {**parts, "warm_starts": starts, "texts": [plan.read(t).env for t in parts["texts"]]}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run, step by step."""
    path = folder / METRICS_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [migrate_metrics(json.loads(line)) for line in lines]


def training_of(rows: list[dict[str, Any]]) -> Training:
    """What the steps of a run took in all."""
    last = rows[-1] if rows else {"step": 0, TOKENS: 0}
    seconds = sum(row.get("time/step") or 0.0 for row in rows)
    return Training(last["step"], int(last[TOKENS]), seconds)


def metric_of(figure: Figure, arm: PlannedArm) -> str:
    """The key of the metric that is drawn for an arm."""
    role = figure.role or next(iter(arm.config.roles))
    return figure.y if "/" in figure.y else f"roles/{role}/{figure.y}"


def drawn_in(figure: Figure) -> dict[str, Any]:
    """All that a figure's curves depend on beside their runs."""
    points = "end of step" if is_after_step(figure.y) else "start of step"
    return {**figure.model_dump(include={"y", "role", "x", "smooth"}), "points": points}


def is_after_step(metric: str) -> bool:
    """Whether a metric is of the weights that a step gave, and not of those that played in it."""
    name = metric.rpartition("/")[2]
    return name.startswith(("eval_", "anchor_")) or name in (*EXPLOITABILITY_METRICS, "legal_share")


def places_of(rows: Iterable[Mapping[str, Any]], metric: str, key: str) -> list[float]:
    """Where the rows with a metric are on an axis of steps or tokens.

    Rollouts of a step are played by the weights from before it, so those of step 1 are at 0."""
    places, before = [], 0.0
    for row in rows:
        here = float(row.get(key, before))
        if row.get(metric) is not None:
            places.append(here if is_after_step(metric) else before)
        before = here
    return places


def curve_of(rows: Iterable[dict[str, Any]], metric: str, figure: Figure) -> Curve:
    """The points of a run that have the metric, each the mean of the last few."""
    key = TOKENS if figure.x == "tokens" else "step"
    rows = list(rows)
    values = [row[metric] for row in rows if row.get(metric) is not None]
    smooth = [
        sum(some) / len(some)
        for at in range(len(values))
        if (some := values[max(0, at + 1 - figure.smooth) : at + 1])
    ]
    return Curve(places_of(rows, metric, key), smooth)
