"""The data sets that benches read: which are missing, and a hash of what their tasks come from.

Missing sets are found before environments and models are loaded. The hash shows whether two results
are about the same tasks, wherever they were measured.
"""

from collections.abc import Sequence
from pathlib import Path

from pettingllms.datasets.published import ENVIRONMENTS
from pettingllms.datasets.sources import Source, parse_source
from pettingllms.datasets.splits import GYM, MADE
from pettingllms.datasets.store import (
    default_split,
    folder_of,
    is_test_only,
    read_record,
    sha256_of,
    stored_files,
)
from pettingllms.errors import ConfigError, DataError
from pettingllms.evaluation.suites.suite import Bench, Suite, hash_of

READERS = frozenset(env for envs in ENVIRONMENTS.values() for env in envs)
"""Environments whose `data` and `test_data` name sources."""
SKIP = "pass --skip-missing to run the other benches"
NO_FILE = "no file"


def sources_of(bench: Bench) -> list[tuple[Source, str]]:
    """The sources of a bench, each with the split that its tasks are from; DataError for a text
    that names none."""
    if bench.env not in READERS:
        return []
    found = []
    test_data = bench.options.get("test_data")
    for key in ("data", "test_data"):
        text = bench.options.get(key, "")
        if not isinstance(text, str) or text in MADE or text.startswith(GYM):
            continue
        source = parse_source(text)
        tests = key == "test_data" or (not test_data and is_test_only(source))
        found.append((source, default_split(source, "test" if tests else "train")))
    return found


def num_published(bench: Bench) -> int | None:
    """The published number of test problems of a bench; None if it is unknown."""
    for source, split in reversed(sources_of(bench)):
        chosen = source.selection
        if chosen.last is not None:
            return chosen.last - chosen.first
        if source.published is not None and not source.part:
            return source.published.rows.get(split)
    return None


def missing_data(benches: Sequence[Bench]) -> dict[str, list[str]]:
    """By bench: the data sets that are not on this machine, and how to get them. Benches that lack
    parts of one set have the same message."""
    lacking: dict[str, dict[str, str]] = {}
    users: dict[str, list[str]] = {}
    for bench in benches:
        for source, split in _parsed(bench):
            try:
                if source.kind != "file":
                    stored_files(source, split)
            except DataError as error:
                lacking.setdefault(source.name, {})[source.to_get] = str(error)
                users.setdefault(source.name, []).append(bench.title)
    found: dict[str, list[str]] = {}
    for name, reasons in lacking.items():
        line = next(iter(reasons.values()))
        if len(reasons) > 1:
            parts = ", ".join(f"'{part}'" for part in reasons)
            line = f"{parts} are not on this machine; run `pettingllms data get {name}`"
        for title in dict.fromkeys(users[name]):
            found.setdefault(title, []).append(line)
    return found


def require_data(suite: Suite) -> None:
    """Raise ConfigError with every data set of a suite that is not on this machine."""
    found = missing_data(suite.benches)
    if problems := merged(found):
        hint = [SKIP] if len(found) < len(suite.benches) else []
        raise ConfigError(suite.title, [*problems, *hint])


def merged(problems: dict[str, list[str]]) -> list[str]:
    """Problems of benches, those with the same text in one line."""
    found: dict[str, list[str]] = {}
    for title, lines in problems.items():
        for line in lines:
            found.setdefault(line, []).append(title)
    return [f"{'; '.join(titles)}: {line}" for line, titles in found.items()]


def task_source(bench: Bench) -> str:
    """A hash of what the tasks of a bench come from: the files of its data, or else the environment
    and its options. Both forms of an environment have the same tasks."""
    sources = _parsed(bench)
    if sources:
        source, split = sources[-1]  # the test set, if there is one
        return hash_of("data", sorted(_hashes(source, split)))
    options = {key: value for key, value in bench.options.items() if key != "solo"}
    return hash_of("options", bench.env, sorted(options.items(), key=str))


def _parsed(bench: Bench) -> list[tuple[Source, str]]:
    """The sources of a bench; none if it names an unknown one, which its environment reports."""
    try:
        return sources_of(bench)
    except DataError:
        return []


def _hashes(source: Source, split: str) -> list[str]:
    if source.kind == "file":
        path = Path(source.name)
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        return [sha256_of(file) for file in files if file.is_file()] or [NO_FILE]
    record = read_record(folder_of(source))
    key = f"{source.part}/{split}" if source.part else split
    if record is None or key not in record.splits:
        return [NO_FILE]
    return [record.files[name].sha256 for name in record.splits[key]]
