"""Compare two results files: differences per bench, paired by task, with intervals.

Only tasks that both files measured enter a difference, and only if they come from the same data or
the same generated environment. A task is compared by the share of its episodes with success, so the
files may have different numbers of samples.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pettingllms.errors import RecordError
from pettingllms.evaluation.suites.results import FORMAT, RESULTS, Result
from pettingllms.runs.scores import Estimate, paired_difference


@dataclass(frozen=True, slots=True)
class Baseline:
    """The results that others are compared with."""

    path: str
    player: str
    results: dict[str, Result]
    """By bench."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One form of a bench in both files."""

    bench: str
    form: str
    baseline: str
    """The player of the other file."""
    num_tasks: int = 0
    """Tasks that both measured."""
    num_unpaired: int = 0
    """Tasks that only one of them measured."""
    difference: Estimate | None = None
    """Success here minus success there; None if they cannot be compared."""
    num_failed: int = 0
    """Failed episodes of both, which count as unsuccessful."""
    reason: str = ""
    """Why there is no difference."""

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    def line(self) -> str:
        """The comparison in one sentence."""
        where = f"{self.bench}, {self.form}"
        if self.difference is None:
            return f"{where}: no comparison with {self.baseline}: {self.reason}."
        low, middle, high = (
            f"{100 * value:+.1f}"
            for value in (self.difference.low, self.difference.value, self.difference.high)
        )
        rest = f"; {self.num_unpaired} others are left out" if self.num_unpaired else ""
        failed = "; failed episodes count as unsuccessful" if self.num_failed else ""
        return (
            f"{where}: {middle} points [{low}, {high}] against {self.baseline}, paired over "
            f"{self.num_tasks} tasks{rest}{failed}."
        )


def read_baseline(path: Path) -> Baseline:
    """The results in a file, or in the folder of a suite."""
    file = path / RESULTS if path.is_dir() else path
    if not file.is_file():
        raise RecordError(f"--compare {path}: no such file; give a results.json of `eval --suite`")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        number = data["format"]
        results = [Result.from_json(one) for one in data["benches"] if number == FORMAT]
        found = Baseline(str(path), data["player"]["name"], {one.name: one for one in results})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordError(f"{file} is not a results file of `eval --suite` ({error!r})") from None
    if number != FORMAT:
        raise RecordError(
            f"{file} has format {number}; expected {FORMAT}, which has a number for each task; run "
            "its evaluation again"
        )
    return found


def compare_results(results: Sequence[Result], baseline: Baseline) -> Iterator[Comparison]:
    """Every form of every bench against the same form in the other file."""
    for result in results:
        for form in result.forms:
            yield _compared(result, form, baseline)


def _compared(result: Result, form: str, baseline: Baseline) -> Comparison:
    other = baseline.results.get(result.name)
    if other is None or form not in other.forms:
        reason = f"{baseline.path} has no such result"
    elif other.task_source != result.task_source:
        reason = "its tasks come from other data or other options"
    elif result.forms[form].avg is None or other.forms[form].avg is None:
        reason = "every episode failed"
    else:
        return _paired(result, other, form, baseline.player)
    return Comparison(result.name, form, baseline.player, reason=reason)


def _paired(result: Result, other: Result, form: str, player: str) -> Comparison:
    mine, theirs = result.forms[form], other.forms[form]
    shared = [task for task in mine.tasks if task in theirs.tasks]
    if not shared:
        return Comparison(result.name, form, player, reason="no task is in both")
    difference = paired_difference(
        [mine.tasks[task] for task in shared], [theirs.tasks[task] for task in shared]
    )
    return Comparison(
        bench=result.name,
        form=form,
        baseline=player,
        num_tasks=len(shared),
        num_unpaired=len(mine.tasks) + len(theirs.tasks) - 2 * len(shared),
        difference=difference,
        num_failed=mine.num_failed + theirs.num_failed,
    )
