"""Download of a data set by name: list, compare with what is there, download, verify, record.

Only `pettingllms data get` calls this; training never does. The hub's client transfers the bytes.
A file is downloaded to a `.part` file named by its hash, so that an interrupted download continues
where it stopped, and moves to its place after its hash was compared with the hub's.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, cast

from pettingllms.datasets.archives import unpack
from pettingllms.datasets.hub_errors import hub_errors
from pettingllms.datasets.hub_layout import layout_of
from pettingllms.datasets.published import SHARED, Files
from pettingllms.datasets.sources import Source, parse_source
from pettingllms.datasets.store import (
    BLOCK,
    Record,
    Stored,
    folder_of,
    read_record,
    safe_name,
    sha256_of,
    write_record,
)
from pettingllms.errors import DataError, HubError

TIMEOUT = 10.0
"""Seconds for the hub's first answer."""
MAX_GB = 20.0
Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Listed:
    """One file as the hub lists it."""

    name: str
    size: int
    sha256: str
    """Of files in large-file storage; empty for others."""
    git: str
    """The hash of other files: SHA-1 of a git blob."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a download takes, and from where."""

    source: Source
    repo: str
    """The current name, if the repository was renamed."""
    revision: str
    license: str
    files: Mapping[str, Listed]
    splits: Mapping[str, tuple[str, ...]]
    """All splits of the data set, by key."""
    wanted: tuple[str, ...]
    """Names of the files to download."""


def get_data(
    text: str, revision: str = "", max_gb: float = MAX_GB, notify: Notify = lambda _: None
) -> Record:
    """Download a data set, or check that the one on this machine is complete; its record."""
    source = parse_source(text)
    if source.kind == "file":
        raise DataError(f"'{text}' is a file; only names of `data list` and hf: are downloaded")
    entry = source.published
    if entry is not None and entry.archive:
        return _get_archive(source, notify)
    _require_client()
    repo = entry.repo if entry else source.name
    with hub_errors(text, repo):
        plan = _plan(source, repo, revision or source.revision or (entry.revision if entry else ""))
    if plan.repo != repo:
        notify(f"{repo} has moved: the hub now calls it {plan.repo}; downloading from there")
    folder = folder_of(source)
    folder.mkdir(parents=True, exist_ok=True)
    old = read_record(folder)
    known = old.files if old is not None and old.revision == plan.revision else {}
    missing = [name for name in plan.wanted if not _is_whole(folder / name, known.get(name))]
    _check_room(text, folder, [plan.files[name].size for name in missing], max_gb)
    stored = dict(known)
    for at, name in enumerate(missing, start=1):
        notify(f"{at} of {len(missing)}: {name}, {plan.files[name].size:,} bytes")
        with hub_errors(text, plan.repo):
            stored[name] = _download(plan, plan.files[name], folder)
    if not missing:
        notify("complete; the SHA-256 of every file is the recorded one")
    record = Record(source.name, plan.repo, plan.revision, plan.license, stored)
    record = replace(record, splits=_complete(plan.splits, stored))
    write_record(folder, record)
    return record


def _require_client() -> None:
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise HubError(
            "downloads need huggingface_hub, which is not installed; run "
            "`pip install 'pettingllms[data]'`"
        ) from None


def _plan(source: Source, repo: str, revision: str) -> Plan:
    from huggingface_hub import HfApi

    found = HfApi(library_name="pettingllms").dataset_info(
        repo, revision=revision or None, files_metadata=True, timeout=TIMEOUT
    )
    files = {one.name: one for one in map(_listed, found.siblings or ())}
    card: Mapping[str, Any] = found.card_data.to_dict() if found.card_data else {}  # type: ignore[no-untyped-call]
    entry = source.published
    if entry is not None:
        patterns = {"": entry.files, **entry.parts}
        shared = _matching(files, entry.files.get(SHARED, ()))
    else:
        patterns, shared = layout_of(files, card), ()
    splits = {
        f"{part}/{split}" if part else split: _matching(files, names)
        for part, chosen in patterns.items()
        for split, names in chosen.items()
        if split != SHARED
    }
    wanted = _wanted(source, repo, patterns, splits, sorted(files))
    given = card.get("license")
    license_name = str(given) if given else entry.license if entry else "not stated"
    return Plan(source, found.id, str(found.sha), license_name, files, splits, (*wanted, *shared))


def _listed(found: Any) -> Listed:
    lfs = found.lfs
    name = safe_name(found.rfilename)
    return Listed(name, found.size or 0, lfs.sha256 if lfs else "", found.blob_id or "")


def _matching(files: Iterable[str], patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        name for name in sorted(files) if any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def _wanted(
    source: Source,
    repo: str,
    patterns: Mapping[str, Files],
    splits: Mapping[str, tuple[str, ...]],
    names: list[str],
) -> list[str]:
    """The files of the source's splits; HubError if the repository has none for one of them."""
    if source.part not in patterns:
        known = ", ".join(sorted(filter(None, patterns))) or "none"
        what = f"has no configuration '{source.part}'" if source.part else "has several"
        raise HubError(
            f"'{source.text}': {repo} {what}; write hf:{repo}/CONFIG, with one of {known}"
        )
    chosen = [source.split] if source.split else [*patterns[source.part]]
    found: list[str] = []
    for split in (one for one in chosen if one != SHARED):
        key = f"{source.part}/{split}" if source.part else split
        if not splits.get(key):
            raise HubError(
                f"'{source.text}': {repo} has no file for the {key} split; it has "
                f"{', '.join(names[:8])}{' ...' if len(names) > 8 else ''}; name one with "
                "hf:OWNER/NAME, or download by hand and give the file"
            )
        found += splits[key]
    return list(dict.fromkeys(found))


def _is_whole(path: Path, known: Stored | None) -> bool:
    return known is not None and path.is_file() and sha256_of(path) == known.sha256


def _check_room(text: str, folder: Path, sizes: list[int], max_gb: float) -> None:
    total, free = sum(sizes), shutil.disk_usage(folder).free
    if total > max_gb * 1e9:
        raise DataError(
            f"'{text}' has {total / 1e9:.1f} GB to download, more than {max_gb:g}; add --max-gb"
        )
    if total > free:
        raise DataError(
            f"'{text}' has {total / 1e9:.1f} GB to download, and {folder} has {free / 1e9:.1f} GB "
            "free; make room, or set PETTINGLLMS_DATASETS to a folder on another disk"
        )


def _download(plan: Plan, file: Listed, folder: Path) -> Stored:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(plan.repo, file.name, repo_type="dataset", revision=plan.revision)
    part = folder / f".{file.sha256 or file.git or plan.revision}.part"
    _transfer(url, part, file.size, build_hf_headers(library_name="pettingllms"))
    sha256 = sha256_of(part)
    if file.sha256 != sha256 if file.sha256 else file.git and file.git != _git_hash(part):
        part.unlink()
        raise HubError(
            f"'{plan.source.text}': {file.name} of {plan.repo} is corrupt: its hash is not the one "
            "that the hub lists; nothing of it is kept; download it again"
        )
    place = folder / file.name
    place.parent.mkdir(parents=True, exist_ok=True)
    part.replace(place)
    return Stored(sha256, place.stat().st_size)


def _transfer(url: str, part: Path, size: int | None, headers: dict[str, str]) -> None:
    """Download to a file, from where it ends."""
    from huggingface_hub.file_download import http_get

    plain = {**headers, "Accept-Encoding": "identity"}  # a range of compressed bytes is of no use
    with part.open("ab") as opened:
        done = opened.tell()
        file = cast("BinaryIO", _Bounded(opened, size))
        http_get(url, file, resume_size=done, headers=plain, expected_size=size)


class _Bounded:
    """A file that takes at most twice the bytes expected: the client starts over and over if a
    server breaks off and cannot continue."""

    def __init__(self, file: BinaryIO, size: int | None) -> None:
        self._file = file
        self._left = 2 * size + BLOCK if size is not None else int(MAX_GB * 1e9)

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise OSError("Consistency check failed: more bytes than the hub lists")
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _git_hash(path: Path) -> str:
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _complete(
    splits: Mapping[str, tuple[str, ...]], stored: Mapping[str, Stored]
) -> dict[str, tuple[str, ...]]:
    return {key: names for key, names in splits.items() if names and stored.keys() >= set(names)}


def _get_archive(source: Source, notify: Notify) -> Record:
    """Download and unpack the archive of a set that is not on the hub."""
    _require_client()
    entry = source.published
    assert entry is not None  # noqa: S101 - only published sets have archives
    folder = folder_of(source)
    folder.mkdir(parents=True, exist_ok=True)
    old = read_record(folder)
    if old is not None and all(_is_whole(folder / name, one) for name, one in old.files.items()):
        notify("complete; the SHA-256 of every file is the recorded one")
        return old
    part = folder / ".archive.part"
    part.unlink(missing_ok=True)  # an archive has no hash by which to continue
    notify(f"downloading {entry.archive}")
    with hub_errors(source.text, entry.archive):
        _transfer(entry.archive, part, None, {})
    layouts = {"": entry.files, **entry.parts}
    patterns = [p for chosen in layouts.values() for names in chosen.values() for p in names]
    names = unpack(part, folder, lambda name: any(fnmatchcase(name, p) for p in patterns))
    splits = {
        f"{at}/{split}" if at else split: _matching(names, chosen)
        for at, files in layouts.items()
        for split, chosen in files.items()
    }
    stored = {
        name: Stored(sha256_of(folder / name), (folder / name).stat().st_size) for name in names
    }
    record = Record(source.name, entry.archive, "", entry.license, stored)
    write_record(folder, replace(record, splits=_complete(splits, stored)))
    part.unlink()
    return record
