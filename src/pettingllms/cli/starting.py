"""`init` and `quickstart`: the first hour."""

from pathlib import Path
from typing import Annotated

import typer


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.")],
) -> None:
    """Make a project that trains as it is: an environment, a configuration, a test, a README."""
    from pettingllms.cli.projects import make_project

    make_project(folder)
