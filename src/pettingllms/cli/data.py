"""`data`: list, download and show data sets, and compare training with test sets."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.datasets.fetch import get_data
from pettingllms.datasets.overlap import Asked, Contamination, Pairs, contamination
from pettingllms.datasets.published import PublishedSet, published
from pettingllms.datasets.questions import questions_of
from pettingllms.datasets.rows import rows_of, text_files
from pettingllms.datasets.sources import Source, parse_source
from pettingllms.datasets.store import (
    Record,
    data_folder,
    folder_of,
    is_test_only,
    kept_records,
    read_record,
    stored_files,
)

MAX_TEXT = 240
"""Characters of a value that are shown."""


def list_data() -> None:
    """Print a table of the published data sets and of what is on this machine."""
    kept = {name: record for name, _, record in kept_records()}
    table = Table(
        *("name", "rows", "license", "environments", "on disk"),
        title=escape(f"Data sets in {data_folder()}"),
    )
    for name, entry in published().items():
        rows = ", ".join(f"{count:,} {split}" for split, count in entry.rows.items())
        envs = ", ".join(entry.environments)
        license_name = kept[name].license if name in kept else entry.license
        table.add_row(f"[bold]{name}[/]", rows, license_name, envs, _on_disk(kept.get(name)))
    for name in kept.keys() - published().keys():
        table.add_row(
            f"[bold]{escape(name)}[/]", "", escape(kept[name].license), "", _on_disk(kept[name])
        )
    console.print(table)
    console.print(
        "Download one: [bold]pettingllms data get NAME[/]; any other of the hub: hf:OWNER/NAME"
    )


def _on_disk(record: Record | None) -> str:
    if record is None or not record.splits:
        return "no"
    size = sum(one.bytes for one in record.files.values())
    return f"{', '.join(record.splits)}: {size / 1e6:,.1f} MB"


def get(name: str, revision: str, max_gb: float) -> None:
    """Download a data set and print where it is."""
    record = get_data(name, revision, max_gb, lambda line: console.print(escape(line)))
    folder = folder_of(parse_source(name))
    at = f" at revision {record.revision}" if record.revision else ""
    console.print(
        f"[bold]{escape(name)}[/] is in [bold]{escape(str(folder))}[/], from "
        f"{escape(record.origin + at)}; license: {escape(record.license)}"
    )


def show(name: str, split: str, num_rows: int) -> None:
    """Print the origin, license, counts and first rows of a data set."""
    source = parse_source(name)
    entry = source.published
    _print_origin(source, entry, None if source.kind == "file" else read_record(folder_of(source)))
    split = source.split or split or ("test" if is_test_only(source) else "train")
    if entry is not None and entry.kind == "levels":
        for file in islice(text_files(name, split, "levels"), 1):
            _print_text(file, num_rows)
        return
    kind = entry.kind if entry is not None else "problems"
    count = 0
    for count, row in enumerate(rows_of(name, split, kind), start=1):
        if count <= num_rows:
            console.print(f"[bold]{escape(row.name)}[/]")
            for field, value in row.values.items():
                console.print(f"  {escape(str(field))}: {escape(_short(value))}", highlight=False)
    console.print(f"{count:,} rows in {escape(split)}")


def _print_origin(source: Source, entry: PublishedSet | None, record: Record | None) -> None:
    if entry is not None:
        console.print(f"[bold]{entry.name}[/]: {entry.title}")
        console.print(f"environments: {', '.join(entry.environments)}")
        at = f"{entry.repo or entry.archive} {entry.revision}".strip()
        console.print(f"published at: {escape(at)}", highlight=False)
        if entry.parts:
            console.print(f"parts: {', '.join(f'{entry.name}/{part}' for part in entry.parts)}")
    if record is not None:
        console.print(f"origin: {escape(record.origin)} {record.revision}", highlight=False)
        console.print(f"license: {escape(record.license)}")
        console.print(f"splits on disk: {escape(', '.join(record.splits))}")
    elif entry is not None:
        console.print(f"license: {escape(entry.license)}")
    if source.kind != "file" and record is None:
        stored_files(source, source.split or "train")  # says how to download it


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ... ({len(text):,} characters)"


def _print_text(file: Path, num_levels: int) -> None:
    levels = file.read_text(encoding="utf-8").split(";")[1:]
    for level in levels[:num_levels]:
        console.print(escape(f";{level.rstrip()}"), highlight=False)
    console.print(f"{len(levels):,} levels in {escape(file.name)}")


def overlap(train: str, tests: list[str], num_shown: int) -> int:
    """Print what test sets share with a training set; the number of questions that are in both."""
    trained = questions_of(train, "train")
    table = Table("test set", "questions", "same", "near", title=escape(f"Also in {train}"))
    found = {name: contamination(trained, questions_of(name, "test")) for name in tests}
    for name, one in found.items():
        table.add_row(
            escape(name), f"{one.num_test:,}", _share(one.same, one), _share(one.near, one)
        )
    console.print(table)
    for name, one in found.items():
        for line in islice(_examples(name, one), num_shown):
            console.print(escape(line), highlight=False)
    return sum(len(one.same) for one in found.values())


def _share(pairs: "Pairs[Asked]", one: Contamination) -> str:
    return f"{len(pairs):,} ({len(pairs) / max(1, one.num_test):.1%})"


def _examples(name: str, one: Contamination) -> Iterator[str]:
    for kind, pairs in (("same", one.same), ("near", one.near)):
        for ours, theirs in pairs:
            yield f"{kind}: {ours.id} = {name} {theirs.id}: {_short(theirs.key())}"
