"""`pettingllms`: all commands in their panels, and the place where errors become messages."""

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from pettingllms import __version__
from pettingllms.cli import (
    data_commands,
    dataset_commands,
    evaluate_commands,
    extend_commands,
    inspect_commands,
    start_commands,
    train_commands,
)
from pettingllms.cli.gateway import gateway
from pettingllms.cli.launch_commands import launch_app
from pettingllms.cli.recipes import recipes
from pettingllms.cli.search_team import search_team
from pettingllms.cli.serve_env import serve_env

app = typer.Typer(
    name="pettingllms",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
START, TRAIN, EVALUATE = "Start", "Train", "Evaluate"
INSPECT, DATA, EXTEND = "Inspect", "Models and data", "Extend"
FIRST_HOUR = (
    ("pettingllms quickstart", "train a tiny team on this CPU in about four minutes"),
    ("pettingllms view RUN", "curves, episodes and the credit of every turn, in a browser"),
    ("pettingllms init my_project", "your own environment, with a config and a test"),
    ("pettingllms train CONFIG", "train the teams of a config; `list configs` shows the shipped"),
    ("pettingllms eval RUN", "measure a trained team on test tasks"),
)
"""Commands that `pettingllms` without arguments shows."""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


def _allow_run_code(given: bool) -> None:
    if given:
        os.environ["PETTINGLLMS_TRUST_RUN_CODE"] = "1"


def _print_first_hour() -> None:
    width = max(len(command) for command, _ in FIRST_HOUR)
    typer.echo("PettingLLMs trains teams of language models with reinforcement learning. Begin:\n")
    for command, what in FIRST_HOUR:
        typer.echo(f"  {command:<{width}}  {what}")
    typer.echo(
        "\n`pettingllms --help` lists all commands, `pettingllms COMMAND --help` explains one."
    )


@app.callback()
def options(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    _trust_run_code: Annotated[
        bool,
        typer.Option(
            "--trust-run-code",
            callback=_allow_run_code,
            help="Execute Python code named by a run folder. Use it only for runs you trust.",
        ),
    ] = False,
) -> None:
    """Train teams of language models with reinforcement learning."""
    if context.invoked_subcommand is None:
        _print_first_hour()


for panel, commands in {
    START: {
        "quickstart": start_commands.quickstart,
        "init": start_commands.init,
        "check": start_commands.check,
        "list": start_commands.list_names,
        "recipes": recipes,
        "play": start_commands.play,
    },
    TRAIN: {
        "train": train_commands.train,
        "resume": train_commands.resume,
        "sft": train_commands.sft,
        "dpo": train_commands.dpo,
        "show-config": train_commands.show_config,
    },
    EVALUATE: {
        "eval": evaluate_commands.evaluate,
        "tournament": evaluate_commands.tournament,
        "match": evaluate_commands.match,
        "search-team": search_team,
        "reproduce": evaluate_commands.reproduce,
    },
    INSPECT: {
        "view": inspect_commands.view,
        "plot": inspect_commands.plot,
        "report": inspect_commands.report,
        "simulate": inspect_commands.simulate,
    },
    DATA: {
        "rollout": data_commands.rollout,
        "episodes": data_commands.episodes,
        "score": data_commands.score,
        "export": data_commands.export,
        "push": data_commands.push,
    },
    EXTEND: {
        "check-env": extend_commands.check_env,
        "serve-env": serve_env,
        "gateway": gateway,
    },
}.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)  # type: ignore[type-var]
app.add_typer(launch_app, name="launch", rich_help_panel=TRAIN)
app.add_typer(dataset_commands.data_app, name="data", rich_help_panel=DATA)
app.add_typer(data_commands.models_app, name="models", rich_help_panel=DATA)
app.add_typer(data_commands.verifier_app, name="verifier", rich_help_panel=DATA)
app.add_typer(extend_commands.bench_app, name="bench", rich_help_panel=EXTEND)
app.command("doctor", hidden=True)(start_commands.doctor)
app.command("envs", hidden=True)(start_commands.envs)
app.command("algos", hidden=True)(start_commands.algos)


def main() -> None:
    """Run a command, and print errors that a user can act on without a traceback.

    Exit codes: 2 for an error, 3 for a run that paused itself.
    """
    from pettingllms.errors import PausedError, PettingError

    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except PausedError as pause:
        sys.stderr.write(f"paused {pause}\n")
        sys.exit(3)
    except (PettingError, OSError) as error:
        if os.environ.get("PETTINGLLMS_TRACEBACK"):
            raise
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
