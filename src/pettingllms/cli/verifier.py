"""The commands of `verifier`."""

from pathlib import Path
from typing import Annotated

import typer

from pettingllms.cli.arguments import Config, Out, Overrides

verifier_app = typer.Typer(
    help="Train a model that says how likely an answer is right.", no_args_is_help=True
)
Folder = Annotated[Path, typer.Argument(metavar="VERIFIER", help="Folder of `verifier train`.")]
Answers = Annotated[
    Path, typer.Argument(metavar="ANSWERS", help="File, or folder of `verifier data`.")
]


Device = Annotated[str, typer.Option(help="cpu or cuda.")]


@verifier_app.command("data")
def data(
    config: Config,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EPISODES|KEY=VALUE",
            help="Files of episodes; without any, policies are sampled from.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("answers"),
) -> None:
    """Collect answers, label them by whether they were right, balance them in each question."""
    from pettingllms.cli.verifying import collect

    collect(config, words or [], out)


@verifier_app.command("train")
def train(
    config: Config,
    answers: Answers,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("verifier"),
) -> None:
    """Train a verifier on labelled answers."""
    from pettingllms.cli.verifying import train_on

    train_on(config, answers, overrides or [], out)


@verifier_app.command("eval")
def evaluate(
    verifier: Folder,
    answers: Answers,
    out: Out = None,
    device: Device = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a verifier tells right from wrong, and how true its probabilities are."""
    from pettingllms.cli.verifying import report_on

    report_on(verifier, answers, out or verifier, device, as_json)


@verifier_app.command("serve")
def serve(
    verifier: Folder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8100,
    key: Annotated[
        str, typer.Option(help="Environment variable with the key; else a file gets a new one.")
    ] = "",
    device: Device = "cpu",
) -> None:
    """Serve a verifier on this machine, to those who know the key."""
    from pettingllms.cli.verifying import serve_verifier

    serve_verifier(verifier, port, key, device)
