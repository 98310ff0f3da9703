"""`view`, `plot` and `report`: a run looked at, on a page, in a picture, in words."""

from pathlib import Path
from typing import Annotated

import typer


Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]


def view(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN [RUN2]", help="A run's folder, or a file of episodes."),
    ],
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one HTML file instead.")
    ] = None,
    episodes: Annotated[
        int, typer.Option(min=1, help="Episodes of each run in the file, evenly spread.")
    ] = 200,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Look at a run, or at two side by side: curves, episodes, credit. Live while it goes on."""
    from pettingllms.cli.pages import export_runs, serve_runs

    if export is not None:
        export_runs(runs, export, episodes)
    else:
        serve_runs(runs, port, browser)
