"""`eval`: a run's own test tasks, or a suite of benches for anybody."""

from pathlib import Path
from typing import Annotated

import typer

from pettingllms.cli.arguments import Checkpoint, Out, Overrides

SUITES = "With --suite"


def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's folder, or a TOML file. With --suite also a model's folder or name, or "
            "http://HOST:PORT/v1\\[#MODEL].",
            show_default=False,
        ),
    ] = "",
    overrides: Overrides = None,
    checkpoint: Checkpoint = None,
    out: Out = None,
    distance: Annotated[
        bool, typer.Option("--distance", help="Also say how far policies are from perfect play.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    suite: Annotated[
        str,
        typer.Option(
            help="Play these benches: math, code, tools, games, puzzles, or a TOML file.",
            rich_help_panel=SUITES,
        ),
    ] = "",
    player: Annotated[
        str, typer.Option(help="Ask a scripted player instead of RUN.", rich_help_panel=SUITES)
    ] = "",
    policy: Annotated[
        str,
        typer.Option(help="Who plays roles that the run does not have.", rich_help_panel=SUITES),
    ] = "",
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks of each bench.", rich_help_panel=SUITES)
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Plays of each task, the k of pass@k.", rich_help_panel=SUITES),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of chance.", rich_help_panel=SUITES)] = 0,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="In place of all others; 0 is greedy.", rich_help_panel=SUITES),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For one reply.", rich_help_panel=SUITES)
    ] = 600.0,
    concurrent: Annotated[
        int, typer.Option(min=1, help="Plays at once.", rich_help_panel=SUITES)
    ] = 64,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment variable with the server's key: its name.", rich_help_panel=SUITES
        ),
    ] = None,
    skip_missing: Annotated[
        bool,
        typer.Option(
            "--skip-missing",
            help="Go on without benches whose package or program is not installed.",
            rich_help_panel=SUITES,
        ),
    ] = False,
) -> None:
    """Play test tasks without learning: success, avg@k and pass@k, by role; or whole suites."""
    if not suite:
        from pettingllms.cli.training import evaluate_policies

        if not run:
            raise typer.BadParameter("give a run's folder, or --suite", param_hint="RUN")
        evaluate_policies(Path(run), overrides or [], checkpoint, out, as_json, distance)
        return
    from pettingllms.cli.suites import Order, evaluate_suite
    from pettingllms.suites.play import Settings

    order = Order(
        suite, run, player, overrides or [], checkpoint, policy, tasks, samples, key or [],
        skip_missing, out, as_json,
    )  # fmt: skip
    evaluate_suite(order, Settings(seed, concurrent, seconds, temperature))
