"""The syntax of `env.data`, the same in every environment that reads data.

| source | data |
| --- | --- |
| `NAME` | a published data set, as `pettingllms data get NAME` stored it |
| `NAME/PART`, `NAME:SPLIT` | a part of it, such as `anli/r2`; one split, such as `gsm8k:test` |
| `hf:OWNER/NAME[/CONFIG][@REVISION][:SPLIT]` | any data set of the hub |
| `FILE`, `FORMAT:FILE` | a file or a folder of files |

After a `?`, joined by `&`: `rows=500..4500` takes rows by position, `from=2024-08-01` and
`to=2025-02-01` by date, and `question=prompt` reads the field `prompt` as `question`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

from pettingllms.datasets.published import ENVIRONMENTS, PublishedSet, published
from pettingllms.errors import DataError, nearest

HUB = "hf:"
ON_HUB = re.compile(
    r"hf:(?P<name>[\w.-]+/[\w.-]+)(?:/(?P<part>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?"
    r"(?::(?P<split>[\w.-]+))?",
    re.ASCII,
)
SPLITS = ("train", "validation", "test")
PLAIN = "plain"
"""Format of rows with a question and an answer."""
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".gz", ".txt")
SYNTAX = (
    "give a name of `pettingllms data list`, hf:OWNER/NAME, or a file (./FILE if it has no ending)"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows are taken, and how their fields are called."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Field that is expected, to field of the data."""
    first: int = 0
    last: int | None = None
    """Positions of rows, from 0; `last` is excluded."""
    begin: str = ""
    end: str = ""
    """Days as in 2024-08-31; `end` is included."""


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed source."""

    text: str
    kind: Literal["published", "hub", "file"]
    name: str
    """Name of a set, OWNER/NAME, or path."""
    part: str = ""
    """Part of a set, or configuration of a data set on the hub."""
    split: str = ""
    revision: str = ""
    format: str = ""
    """How rows become problems; empty: recognized by their fields."""
    selection: Selection = Selection()

    @property
    def published(self) -> PublishedSet | None:
        """Its entry in the table, if it has one."""
        return published()[self.name] if self.kind == "published" else None

    @property
    def to_get(self) -> str:
        """What `pettingllms data get` takes for it."""
        return self.text.partition("?")[0]


def parse_source(text: str) -> Source:
    """The source that a text names; DataError if it names none."""
    if Path(text).exists() and ":" not in text:
        return _local(text, text, Selection())
    head, _, query = text.partition("?")
    selection = _selection(text, query)
    if head.startswith(HUB):
        return _on_hub(text, head, selection)
    name, colon, rest = head.partition(":")
    base, _, part = name.partition("/")
    sets = published()
    formats = {one.format for one in sets.values() if one.format} | {PLAIN}
    if colon and rest not in SPLITS and (name in formats or name in sets):
        known = name if name in formats else sets[name].format
        return Source(text, "file", rest, format=known, selection=selection)
    if base in sets and not _is_file(head):
        files = sets[base].files_of(part)
        if colon and rest not in files:
            raise DataError(f"'{text}': '{name}' has no split '{rest}'; {nearest(rest, files)}")
        return Source(text, "published", base, part, rest, "", sets[base].format, selection)
    if not colon and _is_file(head):
        return _local(text, head, selection)
    names = sorted({*sets, *formats})
    raise DataError(f"no data set is called '{name}'; {SYNTAX}; {nearest(name, names)}")


def source_of(text: str, kind: str) -> Source:
    """The source that a text names; DataError if environments of another kind read it."""
    source = parse_source(text)
    if source.published is not None and source.published.kind != kind:
        raise DataError(
            f"'{text}' is data for {' and '.join(source.published.environments)}, not for "
            f"{' and '.join(ENVIRONMENTS[kind])}; set env.data to other data, or env.id"
        )
    return source


def _is_file(head: str) -> bool:
    return head.startswith((".", "/", "~")) or head.endswith(SUFFIXES)


def _local(text: str, path: str, selection: Selection) -> Source:
    return Source(text, "file", str(Path(path).expanduser()), selection=selection)


def _on_hub(text: str, head: str, selection: Selection) -> Source:
    found = ON_HUB.fullmatch(head)
    if found is None or any(part in (".", "..") for part in found["name"].split("/")):
        raise DataError(f"'{text}': expected hf:OWNER/NAME[/CONFIG][@REVISION][:SPLIT]")
    given = {key: value or "" for key, value in found.groupdict().items()}
    return Source(text, "hub", **given, selection=selection)


def _selection(text: str, query: str) -> Selection:
    pairs = [pair.partition("=") for pair in query.split("&") if query]
    options = {key: value for key, _, value in pairs}
    if len(options) < len(pairs) or not all(key and value for key, value in options.items()):
        raise DataError(f"'{text}': after '?', expected KEY=VALUE joined by '&', each key once")
    first, last = _positions(text, options.pop("rows", ""))
    begin, end = (_day(text, options.pop(key, "")) for key in ("from", "to"))
    return Selection(options, first, last, begin, end)


def _positions(text: str, rows: str) -> tuple[int, int | None]:
    if not rows:
        return 0, None
    found = re.fullmatch(r"(\d{0,12})\.\.(\d{0,12})", rows, re.ASCII)
    first, last = (found[1] or "0", found[2]) if found else ("", "")
    if not first or (last and int(last) <= int(first)):
        raise DataError(f"'{text}': rows is '{rows}'; expected FIRST..LAST such as 500..4500")
    return int(first), int(last) if last else None


def _day(text: str, day: str) -> str:
    try:
        return date.fromisoformat(day).isoformat() if day else ""
    except ValueError:
        raise DataError(f"'{text}': '{day}' is not a day such as 2024-08-31") from None
