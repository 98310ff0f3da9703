"""Results of a suite: one file per finished bench, and one file with everything.

A finished bench is not run again. The table and the figure are made from the combined file.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pettingllms.errors import RecordError
from pettingllms.evaluation.suites.evaluated import EvaluatedPlayer
from pettingllms.evaluation.suites.rollouts import Settings
from pettingllms.evaluation.suites.scoring import Measured, measured_from
from pettingllms.evaluation.suites.suite import Bench, Suite
from pettingllms.evaluation.suites.token_matched import Equal, equal_from
from pettingllms.preflight.machine import this_machine
from pettingllms.runs.folder import slug, versions, write_whole

RESULTS, BENCHES, EPISODES = "results.json", "benches", "episodes"
FORMAT = 3


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one bench."""

    name: str
    env: str
    fingerprint: str
    """Hash of the bench, the evaluated player and the settings."""
    seconds: float
    """Wall-clock time of all its episodes."""
    forms: dict[str, Measured]
    equal: Equal | None = None
    """Team and solo at equal tokens, if compared."""

    @property
    def has_number(self) -> bool:
        """Whether each form has at least one episode that did not fail."""
        return all(found.avg is not None for found in self.forms.values())

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "format": FORMAT,
            "name": self.name,
            "env": self.env,
            "fingerprint": self.fingerprint,
            "seconds": self.seconds,
            "forms": {name: found.to_json() for name, found in self.forms.items()},
            "equal": None if self.equal is None else self.equal.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            data["name"],
            data["env"],
            data["fingerprint"],
            data["seconds"],
            {name: measured_from(found) for name, found in data["forms"].items()},
            None if data["equal"] is None else equal_from(data["equal"]),
        )

    def write(self, folder: Path) -> None:
        """Write the result into the suite's folder."""
        path = bench_path(folder, self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(self.to_json(), indent=1))


def bench_path(folder: Path, bench: str) -> Path:
    """The result file of a bench."""
    return folder / BENCHES / f"{slug(bench)}.json"


def read_result(folder: Path, bench: str, expected: str) -> Result | None:
    """The stored result of a bench, if its fingerprint matches."""
    path = bench_path(folder, bench)
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        is_same = data.get("format") == FORMAT and data["fingerprint"] == expected
        return Result.from_json(data) if is_same else None
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordError(
            f"{path} is not the result of a bench ({error!r}); move it away"
        ) from None


def fingerprint(bench: Bench, evaluated: EvaluatedPlayer, settings: Settings) -> str:
    """Hash of everything that affects the result; concurrency does not."""
    parts = (bench.model_dump_json(), evaluated.fingerprint, settings.seed, settings.temperature)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


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

    @property
    def unmeasured(self) -> Sequence[Result]:
        """Benches without a number for some form."""
        return [result for result in self.results if not result.has_number]

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON data."""
        return {
            "format": FORMAT,
            "suite": self.suite.model_dump(mode="json"),
            "player": {"kind": self.evaluated.kind, "name": self.evaluated.name}
            | ({"url": self.evaluated.spec.url} if self.evaluated.spec else {}),
            "command": self.command,
            "seed": self.settings.seed,
            "max_concurrent": self.settings.max_concurrent,
            "machine": this_machine(),
            "versions": versions(),
            "benches": [result.to_json() for result in self.results],
            "skipped": self.skipped,
        }
