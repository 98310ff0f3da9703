"""The one console that commands print to."""

import sys

from rich.console import Console

console = Console(highlight=False)


def warn(text: str) -> None:
    """Say it beside what is printed, which may be read by a program."""
    sys.stderr.write(f"{text}\n")
