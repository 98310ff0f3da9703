"""`view`, `plot` and `report`: a run looked at, on a page, in a picture, in words."""

from pathlib import Path
from typing import Annotated

import typer

from pettingllms.cli.arguments import RunPath


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


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Runs' folders; those that differ by seed are one."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PNG or SVG; else the terminal.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Such as mismatch or roles/planner/reward; again for more."),
    ] = None,
    x: Annotated[str, typer.Option(help="step or tokens.")] = "step",
    smooth: Annotated[int, typer.Option(min=1, help="Steps that a point is the mean of.")] = 1,
) -> None:
    """Draw how runs went: reward by level and role, success, mismatch, entropy, speed."""
    from pettingllms.cli.plots import plot_runs
    from pettingllms.experiments.curves import Wish

    plot_runs(runs, out, Wish(metric or [], x, smooth))


def report(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Markdown or HTML; else the terminal.")
    ] = None,
) -> None:
    """Say on one page what was trained, how it went and what to worry about."""
    from pettingllms.cli.plots import report_run

    report_run(run, out)
