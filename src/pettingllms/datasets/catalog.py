"""The data sets by name, from a file of yours or from the hub."""

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
"""What reads a row of a data set, by the set's name."""
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
"""Repository and files of the sets that the hub has under one stable name."""

REPEATED = {"dapo_math"}
"""Sets that were published with every problem many times over; each is taken once."""


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
    """Every problem where it stands first."""
    seen = set()
    for problem in problems:
        if (key := problem.key()) not in seen:
            seen.add(key)
            yield problem


def fetched(name: str, part: Part) -> str:
    """The file of a set on this machine, fetched from the hub if it is not here yet."""
    repo, files = HUB.get(name, ("", {}))
    if part not in files:
        raise DataError(f"'{name}' cannot be fetched to {part} with; give a file: \"{name}:FILE\"")
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise DataError(
            f"'{name}' is fetched by huggingface_hub, which is not installed; "
            f"pip install 'pettingllms[data]', or give a file: \"{name}:FILE\""
        ) from None
    try:
        return str(hf_hub_download(repo, files[part], repo_type="dataset"))
    except (HfHubHTTPError, OSError) as error:
        raise DataError(
            f"'{name}' cannot be fetched from {repo}: {str(error).splitlines()[0]}; give a file: "
            f'"{name}:FILE"'
        ) from None
