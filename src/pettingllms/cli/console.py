"""The one console that commands print to."""

import sys

from rich.console import Console

from pettingllms.errors import ConfigError, describe

console = Console(highlight=False)


def warn(text: str) -> None:
    """Say it beside what is printed, which may be read by a program."""
    sys.stderr.write(f"{text}\n")


def no_port(host: str, port: int, error: OSError) -> ConfigError:
    """A port that cannot be had, by its number."""
    why = (error.strerror or describe(error)).partition(" (")[0]
    return ConfigError("--port", [f"no listening on {host}:{port} ({why}); 0 takes a free port"])
