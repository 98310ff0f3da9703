"""Fixtures of tests of data sets."""

import pytest

from pettingllms.datasets import code_formats, short_answers, splits, text_to_sql


@pytest.fixture(autouse=True)
def nothing_read() -> None:
    """Sources are read once per process, but each test has its own folder of data sets."""
    for module in (code_formats, short_answers, splits, text_to_sql):
        for value in vars(module).values():
            if hasattr(value, "cache_clear") and value.__module__ == module.__name__:
                value.cache_clear()
