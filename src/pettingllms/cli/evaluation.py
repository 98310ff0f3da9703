"""`eval`: a run's own test tasks, or a suite of benches for anybody."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pettingllms.cli.arguments import Checkpoint, Out, Overrides

SUITES = "With --suite"
KEYS = {"tasks": "eval.num_tasks", "samples": "eval.num_samples", "temperature": "eval.temperature"}
"""What the options of suites are called where a run's own test tasks are played."""


def evaluate(
    context: typer.Context,
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
    exploitability: Annotated[
        bool,
        typer.Option("--exploitability", help="Also say how far policies are from perfect play."),
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
    _refuse_other_half(context, bool(suite))
    if not suite:
        from pettingllms.cli.training import evaluate_policies

        if not run:
            raise typer.BadParameter("give a run's folder, or --suite", param_hint="RUN")
        evaluate_policies(Path(run), overrides or [], checkpoint, out, as_json, exploitability)
        return
    from pettingllms.cli.suites import Order, evaluate_suite
    from pettingllms.evaluation.suites.rollouts import Settings

    order = Order(
        suite, run, player, overrides or [], checkpoint, policy, tasks, samples, key or [],
        skip_missing, out, as_json,
    )  # fmt: skip
    evaluate_suite(order, Settings(seed, concurrent, seconds, temperature))


def _refuse_other_half(context: typer.Context, of_suites: bool) -> None:
    """Name an option that would be ignored, as the half that knows it was not asked for."""
    for param in _given(context):
        if of_suites and param.name == "exploitability":
            raise typer.BadParameter(
                "benches have no distance from perfect play; leave out --suite or --exploitability",
                param=param,
            )
        if not of_suites and param.name != "suite" and param.rich_help_panel == SUITES:
            instead = ""
            if key := KEYS.get(param.name):
                number = context.params[param.name]
                instead = f"; give {key}={number:g} for a run's own test tasks"
            raise typer.BadParameter(
                f"is for benches; add --suite NAME, or leave it out{instead}", param=param
            )


def _given(context: typer.Context) -> list[Any]:
    """The parameters that stood on the command line."""
    params: list[Any] = context.command.params
    sources = [context.get_parameter_source(param.name) for param in params]
    return [
        param
        for param, source in zip(params, sources, strict=True)
        if source is not None and source.name == "COMMANDLINE"
    ]
