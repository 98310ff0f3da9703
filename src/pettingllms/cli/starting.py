"""`init` and `quickstart`: the first hour."""

from pathlib import Path
from typing import Annotated

import typer

from pettingllms.cli.arguments import Overrides


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.")],
) -> None:
    """Make a project that trains as it is: an environment, a configuration, a test, a README."""
    from pettingllms.cli.projects import make_project

    make_project(folder)


def quickstart(
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; new or empty.")] = None,
    open_view: Annotated[
        bool, typer.Option("--open", help="Then look at it in a browser, as `view` does.")
    ] = False,
) -> None:
    """Train a tiny team in mazes on this machine's CPU, in about five minutes."""
    from pettingllms.cli.pages import serve_runs
    from pettingllms.cli.quick import run_quickstart

    run = run_quickstart(out, overrides or [])
    if open_view:
        serve_runs([run], 0, browser=True)
