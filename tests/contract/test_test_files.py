"""Pytest imports test files by their bare names, so no two may share one."""

from collections import Counter
from pathlib import Path


def test_no_two_test_files_share_a_name() -> None:
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
