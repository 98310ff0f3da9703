"""`pettingllms`: the commands, and the one place where an error becomes a message."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from pettingllms import __version__

app = typer.Typer(
    name="pettingllms",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(help="Measure what the system itself costs.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Such as rollout.num_samples=8."),
]
EnvName = Annotated[
    str, typer.Argument(metavar="ENV", help="As in `pettingllms envs`, or file.py:Class.")
]
EnvOptions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Options of the environment, such as solo=true."),
]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Train teams of language models by reinforcement learning."""


@app.command()
def envs() -> None:
    """List the environments."""
    from pettingllms.cli.listing import list_envs

    list_envs()


@app.command()
def algos() -> None:
    """List the algorithms: what each compares with what."""
    from pettingllms.cli.listing import list_algos

    list_algos()


@app.command()
def check(config: Config, overrides: Overrides = None) -> None:
    """Say whether a configuration can run, with every problem at once."""
    from pettingllms.cli.configs import check_config

    check_config(config, overrides or [])


@app.command()
def show_config(config: Config, overrides: Overrides = None) -> None:
    """Print a configuration with every default filled in."""
    from pettingllms.cli.configs import print_config

    print_config(config, overrides or [])


@app.command()
def check_env(
    env: EnvName,
    options: EnvOptions = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 20,
    seconds: Annotated[float, typer.Option(min=1, help="How long all of it may take.")] = 120,
) -> None:
    """Test an environment against the contract."""
    from pettingllms.cli.listing import check_contract

    check_contract(env, options or [], episodes, seconds)


@app.command()
def play(
    env: EnvName,
    options: EnvOptions = None,
    seat: Annotated[
        list[str] | None,
        typer.Option(help="Who plays a role: ROLE=human or ROLE=PLAYER. Others play 'random'."),
    ] = None,
    watch: Annotated[str | None, typer.Option(help="Let this player play every role.")] = None,
    task: Annotated[int, typer.Option(min=0, help="Number of the task to play.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of chance.")] = 0,
    delay: Annotated[float, typer.Option(min=0, help="Seconds between moves to watch.")] = 0.3,
) -> None:
    """Play an environment at the terminal, or watch scripted players."""
    from pettingllms.cli.playing import Game, play_game

    play_game(Game.of(env, options or [], seat or [], watch, task, seed, delay))


@app.command()
def rollout(
    config: Config,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to.")] = None,
    player: Annotated[
        str, typer.Option(help="Scripted player that stands in for policies with an engine.")
    ] = "random",
    split: Annotated[str, typer.Option(help="train or test.")] = "train",
    force: Annotated[bool, typer.Option("--force", help="Write over an earlier run.")] = False,
) -> None:
    """Play a configuration's tasks with scripted players and write the episodes."""
    from pettingllms.cli.rollouts import run_rollout

    run_rollout(config, overrides or [], out, player, split, force)


@app.command()
def score(
    episodes: Annotated[
        Path, typer.Argument(metavar="EPISODES", help="JSON lines.", show_default=False)
    ],
    algo: Annotated[
        str | None, typer.Option(help="As in `pettingllms algos`; else the run's own.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="The run's configuration, if not beside the episodes.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write the scored episodes to.")] = None,
) -> None:
    """Assign credit to episodes that were written earlier, by any algorithm."""
    from pettingllms.cli.rollouts import score_episodes

    score_episodes(episodes, algo, config, out)


@bench_app.command("rollout")
def bench_rollout(
    episodes: Annotated[int, typer.Option(min=200, help="Episodes at once.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cost of a turn with few and with many episodes at once, and memory of an episode."""
    from pettingllms.cli.benches import print_rollout_bench

    print_rollout_bench(episodes, repeats, as_json)


def main() -> None:
    """Run a command; an error that a user can act on is printed without a traceback."""
    from pettingllms.errors import PettingError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (PettingError, OSError) as error:
        if os.environ.get("PETTINGLLMS_TRACEBACK"):
            raise
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
