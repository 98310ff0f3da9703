"""Commands of the panel Train: `train`, `resume`, `sft`, `dpo` and `show-config`."""

from typing import Annotated

import typer

from pettingllms.cli.options import Config, EpisodesOrOverrides, Out, Overrides, RunPath


def train(config: Config, overrides: Overrides = None, out: Out = None) -> None:
    """Train the policies of a config with reinforcement learning."""
    from pettingllms.cli.train import train_config

    train_config(config, overrides or [], out)


def resume(
    run: RunPath,
    step: Annotated[
        int | None,
        typer.Option(min=1, help="Go back to this step's checkpoint and remove later steps."),
    ] = None,
) -> None:
    """Resume a run from its latest complete checkpoint."""
    from pettingllms.cli.train import resume_run

    resume_run(run, step)


def sft(config: Config, overrides: Overrides = None, out: Out = None) -> None:
    """Train policies on recorded or scripted episodes, as a warm start."""
    from pettingllms.cli.train import sft_config

    sft_config(config, overrides or [], out)


def dpo(config: Config, episodes: EpisodesOrOverrides = None, out: Out = None) -> None:
    """Train policies on preference pairs of replies from recorded episodes."""
    from pettingllms.cli.train import dpo_config

    dpo_config(config, episodes or [], out)


def show_config(config: Config, overrides: Overrides = None) -> None:
    """Print a config with all defaults filled in."""
    from pettingllms.cli.check import print_config

    print_config(config, overrides or [])
