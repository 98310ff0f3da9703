"""Commands of the panel Inspect: `view`, `plot`, `report` and `simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from pettingllms.cli.options import Json, RunPath, Seed


def view(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [RUN2]", help="Run folder or episode file.", show_default=False
        ),
    ],
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one HTML file instead of serving the page."),
    ] = None,
    episodes: Annotated[
        int, typer.Option(min=1, help="With --export: episodes per run, evenly spread.")
    ] = 200,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Show learning curves, episodes and advantages of one or two runs in a browser."""
    from pettingllms.cli.view import export_runs, serve_runs

    if export is not None:
        export_runs(runs, export, episodes)
    else:
        serve_runs(runs, port, browser)


def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Run folders. Runs that differ only by seed form one curve.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="PNG or SVG file. Default: the terminal."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Metric such as mismatch or roles/planner/reward; repeatable."),
    ] = None,
    x: Annotated[str, typer.Option(help="Horizontal axis: step or tokens.")] = "step",
    smooth: Annotated[int, typer.Option(min=1, help="Average over this many steps.")] = 1,
) -> None:
    """Plot learning curves of runs: reward, success, mismatch, entropy, speed."""
    from pettingllms.cli.plot import plot_runs
    from pettingllms.experiments.curves import PlotOptions

    plot_runs(runs, out, PlotOptions(metric or [], x, smooth))


def report(
    run: RunPath,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Markdown or HTML file. Default: the terminal."),
    ] = None,
) -> None:
    """Summarize a run on one page: setup, results and diagnostics."""
    from pettingllms.cli.plot import report_run

    report_run(run, out)


def simulate(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG [KEY=VALUE]...",
            help="TOML file and overrides; with --calibrate, run folders.",
            show_default=False,
        ),
    ],
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 1,
    gpus_per_node: Annotated[
        int, typer.Option("--gpus-per-node", "--gpus", min=1, help="GPUs per node.")
    ] = 8,
    gpu: Annotated[str, typer.Option(metavar="NAME", help="Kind of GPU.")] = "h100-80",
    steps: Annotated[int, typer.Option(min=1, help="Steps to measure, after a warm-up.")] = 6,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Change an assumption, such as reply_sigma=0.5; repeatable. See the guide.",
        ),
    ] = None,
    search: Annotated[
        bool, typer.Option(help="Search for the best split between engines and learners.")
    ] = True,
    price: Annotated[
        float | None, typer.Option(min=0, help="Dollars per GPU-hour, to print costs.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Use measured speeds of this file instead of assumed ones."
        ),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit speeds to run folders, and write --out.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --calibrate: file to write.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Simulate a config on many GPUs: utilization, staleness, cost, and the best split."""
    from pettingllms.cli.simulate import Options, calibrate_runs, simulate_config

    if calibrate:
        calibrate_runs([Path(one) for one in given], out)
        return
    options = Options(
        nodes, gpus_per_node, gpu, steps, tuple(assume or ()), search, price, calibration, seed
    )
    simulate_config(Path(given[0]), given[1:], options, as_json)
