"""What a suite leaves behind: a file for each bench, written when it is done and never done twice,
and one file with all of it, from which table and figure are made."""

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
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Result:
    """One bench that is done."""

    name: str
    env: str
    asked: str
    """A hash of the bench, the subject and the settings: another question has another answer."""
    seconds: float
    """By the clock, for all of its plays."""
    forms: dict[str, Measured]
    equal: Equal | None = None
    """Team and solo at equal tokens, if they were compared."""

    @property
    def has_number(self) -> bool:
        """Whether some play of each form came to its end."""
        return all(found.avg is not None for found in self.forms.values())

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT,
            "name": self.name,
            "env": self.env,
            "asked": self.asked,
            "seconds": self.seconds,
            "forms": {name: found.to_json() for name, found in self.forms.items()},
            "equal": None if self.equal is None else self.equal.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(
            data["name"],
            data["env"],
            data["asked"],
            data["seconds"],
            {name: measured_from(found) for name, found in data["forms"].items()},
            None if data["equal"] is None else equal_from(data["equal"]),
        )

    def write(self, folder: Path) -> None:
        """Put it into the suite's folder."""
        path = path_of(folder, self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(self.to_json(), indent=1))


def path_of(folder: Path, bench: str) -> Path:
    """The file of a bench."""
    return folder / BENCHES / f"{slug(bench)}.json"


def read_result(folder: Path, bench: str, asked_now: str) -> Result | None:
    """The result of a bench, if it is there and is of just what is asked for now."""
    path = path_of(folder, bench)
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        is_same = data["format"] == FORMAT and data["asked"] == asked_now
        return Result.from_json(data) if is_same else None
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordError(f"{path} is not a bench's result ({error!r}); move it away") from None


def asked(bench: Bench, evaluated: EvaluatedPlayer, settings: Settings) -> str:
    """What a bench asks for, as a hash. How many plays there are at once is not part of it."""
    parts = (bench.model_dump_json(), evaluated.fingerprint, settings.seed, settings.temperature)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@dataclass(slots=True)
class Report:
    """A suite so far."""

    suite: Suite
    evaluated: EvaluatedPlayer
    settings: Settings
    command: str
    results: list[Result] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    """By bench: why it was passed over."""

    @property
    def unmeasured(self) -> Sequence[Result]:
        """Benches without a number for some form."""
        return [result for result in self.results if not result.has_number]

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "format": FORMAT,
            "suite": self.suite.model_dump(mode="json"),
            "subject": {"kind": self.evaluated.kind, "name": self.evaluated.name}
            | ({"url": self.evaluated.player_spec.url} if self.evaluated.player_spec else {}),
            "command": self.command,
            "seed": self.settings.seed,
            "max_concurrent": self.settings.max_concurrent,
            "machine": this_machine(),
            "versions": versions(),
            "benches": [result.to_json() for result in self.results],
            "skipped": self.skipped,
        }
