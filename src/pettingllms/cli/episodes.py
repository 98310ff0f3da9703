"""`episodes`: recorded episodes as JSON lines."""

import os
import sys
from pathlib import Path

from rich.markup import escape

from pettingllms.cli.console import console
from pettingllms.errors import ConfigError
from pettingllms.types import episode_files, episode_line, read_episodes, write_episodes
from pettingllms.types.episode_files import step_of


def print_episodes(run: Path, step: int | None, out: Path | None) -> None:
    """Print or write the episodes of a run, a step or a file, one after another."""
    files = episode_files(run)
    if step is not None:
        files = [file for file in files if step_of(file) == step]
    if not files:
        of_step = "" if step is None else f" of step {step}"
        raise ConfigError(
            str(run), [f"has no episodes{of_step}; expected a run or an episode file"]
        )
    found = (episode for file in files for episode in read_episodes(file))
    if out is not None:
        count = write_episodes(out, found)
        console.print(f"Written to [bold]{escape(str(out))}[/]: {count} episodes")
        return
    try:
        for episode in found:
            sys.stdout.write(episode_line(episode))
        sys.stdout.flush()
    except BrokenPipeError:  # such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
