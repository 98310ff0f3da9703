"""Problems of code: bundled or from a file, split into train and test without overlap."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from pettingllms.datasets.asserts import cases_in
from pettingllms.datasets.code_formats import read_problems
from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.datasets.splits import read_splits
from pettingllms.envs.base import Split
from pettingllms.seeds import derive_seed

TEST_SHARE = 10
"""Without a test file, one problem in this many is held out for testing."""


@cache
def problems_of(split: Split, data: str = "", test_data: str = "") -> tuple[CodeProblem, ...]:
    """The problems of a split. A problem in both sources is an error."""
    if not data:
        return read_problems(test_data, "test") if test_data and split == "test" else shipped(split)
    return _read(data, test_data)[split == "test"]


@cache
def _read(data: str, test_data: str) -> tuple[tuple[CodeProblem, ...], tuple[CodeProblem, ...]]:
    return read_splits(
        data, test_data, read_problems, lambda p: derive_seed("code", p.key()) % TEST_SHARE == 0
    )


@cache
def shipped(split: Split) -> tuple[CodeProblem, ...]:
    """The bundled problems, each with known correct and incorrect solutions."""
    text = (
        files("pettingllms.envs.tasks.code").joinpath("problems.toml").read_text(encoding="utf-8")
    )
    found = tomllib.loads(text)["problem"]
    return tuple(_shipped(one) for one in found if one["split"] == split)


def _shipped(one: dict[str, Any]) -> CodeProblem:
    function = one.get("function", "")
    visible, hidden = (_cases(one[which], function) for which in ("visible", "hidden"))
    good, bad = (tuple(text.strip() for text in one[which]) for which in ("good", "bad"))
    return CodeProblem(one["name"], one["statement"], function, visible, hidden, good=good, bad=bad)


def _cases(tests: list[Any], function: str) -> tuple[Case, ...]:
    if not function:
        return tuple(Case(given, expected) for given, expected in tests)
    cases, others = cases_in([f"assert {test}" for test in tests], function)
    assert not others, others  # noqa: S101 - the file is ours
    return cases
