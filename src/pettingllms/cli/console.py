"""The console that all commands print to."""

import sys

from rich.console import Console

from pettingllms.errors import ConfigError, describe

console = Console(highlight=False)


def warn(text: str) -> None:
    """Print a warning to stderr, since a program may parse stdout."""
    sys.stderr.write(f"{text}\n")


def no_port(host: str, port: int, error: OSError) -> ConfigError:
    """The error for a port that cannot be opened."""
    why = (error.strerror or describe(error)).partition(" (")[0]
    return ConfigError("--port", [f"cannot listen on {host}:{port} ({why}); 0 takes a free port"])
