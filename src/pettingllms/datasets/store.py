"""Where downloaded data sets are, and the record beside each: origin, revision, license, hashes.

A split counts as present only if a record lists it, and `fetch` writes the record last. So an
interrupted download is never read.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pettingllms.datasets.published import published
from pettingllms.datasets.sources import Source
from pettingllms.errors import DataError, MissingDataError

RECORD = "source.json"
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """One file of a record."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Record:
    """What is known about the files of a folder."""

    name: str
    origin: str
    """Dataset on the hub, or address of the archive."""
    revision: str
    """Commit on the hub; empty for an archive."""
    license: str
    files: Mapping[str, Stored] = field(default_factory=dict)
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files of each complete split; `PART/SPLIT` for those of a part."""


def data_folder() -> Path:
    """Where data is kept by name: $PETTINGLLMS_DATASETS, or a folder in the user's cache."""
    given = os.environ.get("PETTINGLLMS_DATASETS")
    return Path(given or "~/.cache/pettingllms/datasets").expanduser()


def folder_of(source: Source) -> Path:
    """The folder of a named source, whether it exists or not."""
    return data_folder() / ("hf" if source.kind == "hub" else "") / source.name


def read_record(folder: Path) -> Record | None:
    """The record of a folder; None if nothing was downloaded to it."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        files = {safe_name(name): Stored(**one) for name, one in found["files"].items()}
        splits = {split: tuple(map(safe_name, names)) for split, names in found["splits"].items()}
        return Record(**{**found, "files": files, "splits": splits})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} is damaged ({error}); remove {folder} and download again"
        ) from None


def write_record(folder: Path, record: Record) -> None:
    """Write the record of a folder, in one step."""
    part = folder / f"{RECORD}.part"
    part.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    part.replace(folder / RECORD)


def stored_files(source: Source, split: str) -> tuple[Path, ...]:
    """The files of a split of a downloaded source; MissingDataError if there are none."""
    folder = folder_of(source)
    record = read_record(folder)
    key = f"{source.part}/{split}" if source.part else split
    if record is None or not record.splits:
        raise MissingDataError(
            f"'{source.to_get}' is not on this machine (no data in {folder}); run `pettingllms "
            f"data get {source.to_get}`, or give a file"
        )
    if source.revision and not record.revision.startswith(source.revision):
        raise MissingDataError(
            f"'{source.to_get}' is on this machine at revision {record.revision}; run `pettingllms "
            f"data get {source.to_get}`"
        )
    if key not in record.splits:
        raise MissingDataError(
            f"'{source.to_get}' has no {key} split on this machine, which has "
            f"{', '.join(sorted(record.splits))}; run `pettingllms data get {source.to_get}`, or "
            "name another split or file"
        )
    files = tuple(folder / name for name in record.splits[key])
    if lost := [file for file in files if not file.is_file()]:
        raise MissingDataError(f"{lost[0]} is gone; run `pettingllms data get {source.to_get}`")
    return files


def default_split(source: Source, part: str) -> str:
    """The split of a source that an environment trains (`train`) or tests (`test`) on."""
    if source.split:
        return source.split
    if source.kind == "hub" and part == "test":
        record = read_record(folder_of(source))
        names = record.splits if record else {}
        prefix = f"{source.part}/" if source.part else ""
        if f"{prefix}test" not in names and f"{prefix}validation" in names:
            return "validation"
    return part


def is_test_only(source: Source) -> bool:
    """Whether a source has only test problems, none to train on."""
    if source.split or source.kind == "file":
        return False
    if source.published is not None:
        return source.published.is_test_only(source.part)
    record = read_record(folder_of(source))
    key = f"{source.part}/train" if source.part else "train"
    return record is not None and key not in record.splits


def kept_records() -> Iterator[tuple[str, Path, Record]]:
    """Everything on this machine: the name to write in `env.data`, its folder and its record."""
    top = data_folder()
    places = {name: top / name for name in published()}
    places |= {
        f"hf:{path.parent.relative_to(top / 'hf').as_posix()}": path.parent
        for path in sorted((top / "hf").glob(f"*/*/{RECORD}"))
    }
    for name, folder in places.items():
        record = read_record(folder)
        if record is not None:
            yield name, folder, record


def safe_name(name: str) -> str:
    """A relative path that stays in its folder; ValueError for any other."""
    path = PurePosixPath(name)
    unsafe = path.is_absolute() or not path.parts or {"..", "."} & set(name.split("/"))
    if unsafe or "\\" in name or not name.isprintable() or path.parts[0] == RECORD:
        raise ValueError(f"unsafe file name {name!r:.80}")
    return name


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
