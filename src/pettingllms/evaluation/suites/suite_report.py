"""The results of a suite with published numbers and comparisons: what the table and the file of
results show."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms.evaluation.suites.comparison import Baseline, Comparison, compare_results
from pettingllms.evaluation.suites.evaluated import EvaluatedPlayer
from pettingllms.evaluation.suites.references import Reference, references_for
from pettingllms.evaluation.suites.results import FORMAT, Result
from pettingllms.evaluation.suites.rollouts import Settings
from pettingllms.evaluation.suites.suite import Suite
from pettingllms.preflight.machine import this_machine
from pettingllms.runs.folder import versions


@dataclass(slots=True)
class Report:
    """The results of a suite so far."""

    suite: Suite
    evaluated: EvaluatedPlayer
    settings: Settings
    command: str
    results: list[Result] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    """By bench: why it was skipped."""
    changed: Sequence[str] = ()
    """Options of the command that replace numbers of the benches."""
    baseline: Baseline | None = None
    """Results of another evaluation to compare with."""

    @property
    def unmeasured(self) -> Sequence[Result]:
        """Benches without a number for some form."""
        return [result for result in self.results if not result.has_number]

    @property
    def published(self) -> Sequence[Reference]:
        """Published numbers of the test sets."""
        return references_for(self.suite.benches)

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """The results against those of the baseline."""
        if self.baseline is None:
            return []
        return list(compare_results(self.results, self.baseline))

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON data."""
        return {
            "format": FORMAT,
            "suite": self.suite.model_dump(mode="json"),
            "player": {"kind": self.evaluated.kind, "name": self.evaluated.name}
            | ({"url": self.evaluated.spec.url} if self.evaluated.spec else {}),
            "command": self.command,
            "changed": list(self.changed),
            "seed": self.settings.seed,
            "max_concurrent": self.settings.max_concurrent,
            "machine": this_machine(),
            "versions": versions(),
            "benches": [result.to_json() for result in self.results],
            "skipped": self.skipped,
            "published": [one.to_json() for one in self.published],
            "compared_with": None if self.baseline is None else self.baseline.path,
            "comparisons": [one.to_json() for one in self.comparisons],
        }
