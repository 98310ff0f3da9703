"""Which files of any dataset on the hub are which split: from its card, or from their names."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from glob import escape
from typing import Any

from pettingllms.datasets.published import Files

READABLE = (".parquet", ".jsonl", ".json", ".csv", ".jsonl.gz", ".json.gz", ".csv.gz")
"""Files that are data. Scripts and pickles run code; they are never downloaded."""
NOT_ROWS = ("dataset_infos.json", "dataset_info.json", "config.json", "package.json")
WORDS = {"dev": "validation", "val": "validation", "valid": "validation"}
SPLIT = re.compile(r"(?:^|[/._-])(train|test|validation|valid|val|dev)(?=[/._-]|\d|$)")


def layout_of(names: Iterable[str], card: Mapping[str, Any]) -> dict[str, Files]:
    """The files of each split, by configuration. The only one, or `default`, has no name too."""
    found = sorted(
        name
        for name in names
        if name.endswith(READABLE) and name.rpartition("/")[2] not in NOT_ROWS and name[0] != "."
    )
    layouts = _of_card(found, card.get("configs")) or {"": _of_names(found)}
    named = [name for name in layouts if name]
    alone = named[0] if len(named) == 1 else "default"
    return {**layouts, "": layouts[alone]} if alone in layouts else layouts


def _of_card(names: list[str], configs: Any) -> dict[str, Files]:
    """What the card says under `configs`."""
    layouts: dict[str, Files] = {}
    for one in configs if isinstance(configs, list) else []:
        given = one.get("data_files") if isinstance(one, dict) else None
        if not given:
            continue
        entries = given if isinstance(given, list) else [given]
        splits: dict[str, tuple[str, ...]] = {}
        for entry in entries:
            paths = entry.get("path") if isinstance(entry, dict) else entry
            split = str(entry.get("split", "train")) if isinstance(entry, dict) else "train"
            patterns = [paths] if isinstance(paths, str) else list(paths or ())
            matches = tuple(n for n in names if any(fnmatchcase(n, str(p)) for p in patterns))
            splits[split] = splits.get(split, ()) + tuple(map(escape, matches))
        layouts[str(one.get("config_name", "default"))] = splits
    return layouts


def _of_names(names: list[str]) -> Files:
    """Splits by words in the names; files without one are for training."""
    splits: dict[str, tuple[str, ...]] = {}
    for name in names:
        word = SPLIT.findall(name.lower())
        split = WORDS.get(word[-1], word[-1]) if word else "train"
        splits[split] = (*splits.get(split, ()), escape(name))
    return splits
