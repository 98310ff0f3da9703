"""Results of benches: one file for each. A finished bench is not run again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pettingllms.errors import RecordError
from pettingllms.evaluation.suites.bench_data import task_source
from pettingllms.evaluation.suites.evaluated import EvaluatedPlayer
from pettingllms.evaluation.suites.rollouts import Settings
from pettingllms.evaluation.suites.scoring import Measured, measured_from
from pettingllms.evaluation.suites.suite import TEXTS, Bench, hash_of
from pettingllms.evaluation.suites.token_matched import Equal, equal_from
from pettingllms.runs.folder import slug, write_whole

RESULTS, BENCHES, EPISODES = "results.json", "benches", "episodes"
FORMAT = 4


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
    task_source: str = ""
    """Hash of what the tasks come from; equal where two results are about the same tasks."""

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
            "task_source": self.task_source,
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
            data["task_source"],
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
    config = bench.model_dump_json(exclude=set(TEXTS))
    source = task_source(bench)
    return hash_of(config, source, evaluated.fingerprint, settings.seed, settings.temperature)
