"""A wall clock that jumps by the seconds in a file, PETTINGLLMS_CLOCK, once it exists."""

import os
import time

_FILE = os.environ.get("PETTINGLLMS_CLOCK")
_real = time.time


def _jumped() -> float:
    try:
        with open(_FILE or "", encoding="utf-8") as file:  # noqa: PTH123 - imports nothing at start
            return _real() + float(file.read())
    except (OSError, ValueError):
        return _real()


if _FILE:
    time.time = _jumped
