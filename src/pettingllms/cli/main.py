"""`pettingllms`: all commands in their panels, and the place where errors become messages."""

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from pettingllms import __version__
from pettingllms.cli import (
    data_commands,
    evaluate_commands,
    extend_commands,
    inspect_commands,
    start_commands,
    train_commands,
)
from pettingllms.cli.gateway import gateway

app = typer.Typer(
    name="pettingllms",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
START, TRAIN, EVALUATE = "Start", "Train", "Evaluate"
INSPECT, DATA, EXTEND = "Inspect", "Models and data", "Extend"


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


def _trust_run_code(given: bool) -> None:
    if given:
        os.environ["PETTINGLLMS_TRUST_RUN_CODE"] = "1"


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    trust_run_code: Annotated[
        bool,
        typer.Option(
            "--trust-run-code",
            callback=_trust_run_code,
            help="Execute Python code named by a run folder. Use it only for runs you trust.",
        ),
    ] = False,
) -> None:
    """Train teams of language models with reinforcement learning."""


for panel, commands in {
    START: {
        "quickstart": start_commands.quickstart,
        "init": start_commands.init,
        "check": start_commands.check,
        "list": start_commands.list_names,
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
        "reproduce": evaluate_commands.reproduce,
    },
    INSPECT: {
        "view": inspect_commands.view,
        "plot": inspect_commands.plot,
        "report": inspect_commands.report,
    },
    DATA: {
        "rollout": data_commands.rollout,
        "score": data_commands.score,
        "export": data_commands.export,
    },
    EXTEND: {"check-env": extend_commands.check_env, "gateway": gateway},
}.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)  # type: ignore[type-var]
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
