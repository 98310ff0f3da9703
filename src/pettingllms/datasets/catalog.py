"""The data sets by name, from a local file or the hub."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from pettingllms.datasets import math_sets as maths
from pettingllms.datasets import nli as inference
from pettingllms.datasets.problems import Problem
from pettingllms.datasets.rows import Row, read_rows
from pettingllms.errors import DataError, nearest

Part = Literal["train", "test"]
LOADERS: Mapping[str, Callable[[Row], Problem]] = {
    "gsm8k": maths.gsm8k,
    "math": maths.math,
    "aime": maths.aime,
    "olympiadbench": maths.olympiadbench,
    "dapo_math": maths.dapo_math,
    "svamp": maths.svamp,
    "anli": inference.anli,
}
"""Functions that parse a row, by the name of the data set."""
HUB: Mapping[str, tuple[str, Mapping[Part, str]]] = {
    "gsm8k": (
        "openai/gsm8k",
        {
            "train": "main/train-00000-of-00001.parquet",
            "test": "main/test-00000-of-00001.parquet",
        },
    ),
    "math": ("HuggingFaceH4/MATH-500", {"test": "test.jsonl"}),
    "dapo_math": ("BytedTsinghua-SIA/DAPO-Math-17k", {"train": "data/dapo-math-17k.parquet"}),
    "anli": (
        "facebook/anli",
        {
            "train": "plain_text/train_r1-00000-of-00001.parquet",
            "test": "plain_text/test_r1-00000-of-00001.parquet",
        },
    ),
}
"""Repository and files of the data sets that are on the hub."""

REPEATED = {"dapo_math"}
"""Data sets that repeat every problem; duplicates are removed."""


def load(source: str, part: Part = "train") -> tuple[Problem, ...]:
    """The problems of `NAME:FILE`, or of `NAME` from the hub."""
    name, colon, path = source.partition(":")
    if name not in LOADERS:
        raise DataError(f"no data set is called '{name}'; {nearest(name, LOADERS)}")
    rows = read_rows(path if colon else fetched(name, part))
    found = (LOADERS[name](row) for row in rows)
    problems = tuple(_each_once(found) if name in REPEATED else found)
    if not problems:
        raise DataError(f"{source}: has no rows; expected at least one problem")
    return problems


def _each_once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The first occurrence of every problem."""
    seen = set()
    for problem in problems:
        if (key := problem.key()) not in seen:
            seen.add(key)
            yield problem


def fetched(name: str, part: Part) -> str:
    """The local file of a data set, downloaded from the hub if necessary."""
    repo, files = HUB.get(name, ("", {}))
    if part not in files:
        raise DataError(f"'{name}' has no {part} split to download; give a file: \"{name}:FILE\"")
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise DataError(
            f"'{name}' needs huggingface_hub, which is not installed; "
            f"pip install 'pettingllms[data]', or give a file: \"{name}:FILE\""
        ) from None
    try:
        return str(hf_hub_download(repo, files[part], repo_type="dataset"))
    except (HfHubHTTPError, OSError) as error:
        raise DataError(
            f"'{name}' cannot be downloaded from {repo}: {str(error).splitlines()[0]}; give a "
            f'file: "{name}:FILE"'
        ) from None
