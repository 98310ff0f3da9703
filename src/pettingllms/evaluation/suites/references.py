"""Published numbers of the test sets of a suite, beside what was measured here.

They come from other software, prompts and graders, so they are shown in separate rows,
each with its source, and enter no comparison.
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pettingllms.errors import RecordError
from pettingllms.evaluation.suites.suite import FORMS, Bench

NOT_PUBLISHED = "–"
HERE, PUBLISHED = "measured here", "published"


@dataclass(frozen=True, slots=True)
class Reference:
    """One published number."""

    bench: str
    """Test set."""
    form: str
    """Team or solo."""
    model: str
    method: str
    percent: float
    """Success rate in percent, as published."""
    source: str

    def to_json(self) -> dict[str, Any]:
        """As JSON data, labeled as published."""
        return {**asdict(self), "kind": PUBLISHED}


@cache
def references() -> tuple[Reference, ...]:
    """All published numbers, in the order of the file."""
    text = files("pettingllms.evaluation").joinpath("references.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return tuple(one for name, table in tables.items() for one in _read(name, table))


def _read(name: str, table: dict[str, Any]) -> list[Reference]:
    benches, found = table["benches"], []
    for form, model, method, *values in table["rows"]:
        if form not in FORMS or len(values) != len(benches):
            raise RecordError(
                f"references.toml, {name}: a row is {form!r} with {len(values)} values; expected "
                f"one of {', '.join(FORMS)} with {len(benches)}"
            )
        found += [
            Reference(bench, form, model, method, float(value), table["source"])
            for bench, value in zip(benches, values, strict=True)
            if not math.isnan(value)
        ]
    return found


def references_for(benches: Sequence[Bench]) -> list[Reference]:
    """Published numbers of the test sets of benches, in the forms in which they are run."""
    wanted = {(bench.reference, form) for bench in benches for form in bench.forms}
    return [one for one in references() if (one.bench, one.form) in wanted]


def published_rows(
    found: Sequence[Reference], measured: Sequence[tuple[str, str, str, str]]
) -> list[list[str]]:
    """A table with one column per test set, header first: what was measured (test set, form, player
    and number), then what is published."""
    sets = list(dict.fromkeys(one.bench for one in found))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for bench, form, player, number in measured:
        if bench in sets:
            rows.setdefault((HERE, form, player, ""), {})[bench] = number
    for one in found:
        key = (PUBLISHED, one.form, one.model, one.method)
        rows.setdefault(key, {})[one.bench] = f"{one.percent:.1f}%"
    head = ["", "form", "model", "method", *(name.replace("_", " ") for name in sets)]
    return [
        head,
        *([*key, *(cells.get(s, NOT_PUBLISHED) for s in sets)] for key, cells in rows.items()),
    ]
