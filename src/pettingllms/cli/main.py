"""`pettingllms`: the commands, and the one place where an error becomes a message."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from pettingllms import __version__
from pettingllms.cli.arguments import (
    Checkpoint,
    Config,
    EnvName,
    EnvOptions,
    Keys,
    MaxTokens,
    Out,
    Overrides,
    RunPath,
    Seconds,
    Temperature,
)
from pettingllms.cli.evaluation import evaluate
from pettingllms.cli.gateway import gateway
from pettingllms.cli.groups import bench_app, models_app
from pettingllms.cli.looking import plot, report, view
from pettingllms.cli.starting import init, quickstart
from pettingllms.cli.verifier import verifier_app

app = typer.Typer(
    name="pettingllms",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_app, name="bench")
app.add_typer(models_app, name="models")
app.add_typer(verifier_app, name="verifier")


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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
    trust_run_code: Annotated[
        bool,
        typer.Option(
            "--trust-run-code",
            callback=_trust_run_code,
            help="Execute Python code that a run's folder names. It can do whatever you can do: "
            "use it for runs of people whom you trust.",
        ),
    ] = False,
) -> None:
    """Train teams of language models by reinforcement learning."""


@app.command()
def envs(
    every: Annotated[
        bool, typer.Option("--all", help="With the games of OpenSpiel, PettingZoo and TextArena.")
    ] = False,
) -> None:
    """List the environments."""
    from pettingllms.cli.listing import list_envs, list_library_games

    list_envs()
    if every:
        list_library_games()


@app.command()
def algos() -> None:
    """List the algorithms: what each compares with what."""
    from pettingllms.cli.listing import list_algos

    list_algos()


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what this machine has and lacks for a run."""
    from pettingllms.cli.doctor import print_findings

    print_findings(as_json)


@app.command()
def check(
    config: Config,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Where the run would write.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a configuration can run here, with every problem at once."""
    from pettingllms.cli.configs import check_config

    check_config(config, overrides or [], out, as_json)


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
    player: Annotated[
        list[str] | None,
        typer.Option(
            help="Who plays a role: ROLE=human, ROLE=PLAYER, ROLE=RUN (a run's folder) or "
            "ROLE=http://HOST:PORT/v1. Others play 'random'."
        ),
    ] = None,
    watch: Annotated[str | None, typer.Option(help="Let this player play every role.")] = None,
    task: Annotated[int, typer.Option(min=0, help="Number of the task to play.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of chance.")] = 0,
    delay: Annotated[float, typer.Option(min=0, help="Seconds between moves to watch.")] = 0.3,
    key: Keys = None,
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = 512,
    seconds: Seconds = 120.0,
) -> None:
    """Play an environment at the terminal, or watch others play it."""
    from pettingllms.cli.playing import Game, play_game

    game = Game.of(env, options or [], player or [], watch, task, seed, delay)
    play_game(game.with_servers(key or [], temperature, max_tokens, seconds))


@app.command("match")
def play_match(
    env: EnvName,
    server: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Such as http://127.0.0.1:8000/v1[#MODEL].")
    ],
    options: EnvOptions = None,
    against: Annotated[
        str, typer.Option(help="Who has the other players: a player, a run's folder, an address.")
    ] = "random",
    role: Annotated[
        str | None, typer.Option(help="The model's player; else every player equally often.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Games to play.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of chance.")] = 0,
    concurrent: Annotated[int, typer.Option(min=1, help="Games at once.")] = 8,
    logs: Annotated[Path, typer.Option(help="Folder of the logs.")] = Path("logs"),
    key: Keys = None,
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = 512,
    seconds: Seconds = 120.0,
) -> None:
    """Let a model behind an OpenAI-compatible server play games, and log all of it."""
    from pettingllms.cli.matches import run_match
    from pettingllms.evaluation.match.rounds import Limits

    limits = Limits(rounds, seed, concurrent, max_tokens, seconds)
    run_match(env, options or [], (server, against), role, limits, logs, key or [], temperature)


@app.command()
def tournament(
    env: EnvName,
    options: EnvOptions = None,
    player: Annotated[
        list[str] | None,
        typer.Option(
            help="Who takes part, once for each: a scripted player (minimax, minimax~0.3), a run's "
            "FOLDER, a snapshot FOLDER@20, all of them FOLDER@all, a server http://HOST/v1#MODEL. "
            "NAME= before it renames it."
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="In a round all pairs meet, in every player.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Seed of chance.")] = 0,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="In place of every policy's own; 0 is greedy.")
    ] = None,
    key: Keys = None,
    out: Out = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let runs, snapshots, servers and scripts play each other: ratings and a heat map."""
    from pettingllms.cli.tournaments import Wishes, hold_tournament

    wishes = Wishes(rounds, seed, temperature, key or [], out, as_json)
    hold_tournament(env, options or [], player or [], wishes)


@app.command()
def train(config: Config, overrides: Overrides = None, out: Out = None) -> None:
    """Train the policies of a configuration."""
    from pettingllms.cli.training import train_config

    train_config(config, overrides or [], out)


@app.command()
def sft(config: Config, overrides: Overrides = None, out: Out = None) -> None:
    """Train policies on episodes, of a scripted player or their own: a warm start."""
    from pettingllms.cli.training import sft_config

    sft_config(config, overrides or [], out)


@app.command()
def dpo(
    config: Config,
    episodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EPISODES|KEY=VALUE", help="Files of episodes; such as dpo.beta=0.2."
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Train policies on pairs of their roles' replies, the better paid one preferred."""
    from pettingllms.cli.training import dpo_config

    dpo_config(config, episodes or [], out)


@app.command()
def resume(
    run: RunPath,
    step: Annotated[
        int | None,
        typer.Option(min=1, help="Go back to the checkpoint of this step; later ones are removed."),
    ] = None,
) -> None:
    """Go on with a run that was stopped, paused or killed, from its newest whole checkpoint."""
    from pettingllms.cli.training import resume_run

    resume_run(run, step)


app.command()(init)
app.command()(quickstart)
app.command("eval")(evaluate)
app.command()(view)
app.command()(plot)
app.command()(report)
app.command()(gateway)


@app.command()
def export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write to.")],
    policy: Annotated[str | None, typer.Option(help="Which one, if several learnt.")] = None,
    checkpoint: Checkpoint = None,
) -> None:
    """Write a trained policy as a folder that Transformers, PEFT and vLLM load."""
    from pettingllms.cli.training import export_policy

    export_policy(run, policy, checkpoint, out)


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


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Such as tic_tac_toe, or a folder. Without one, all names are said.",
            show_default=False,
        ),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="In minutes; exit code 1 if learning is broken.")
    ] = False,
    seed: Annotated[
        list[int] | None, typer.Option(help="One of the seeds alone; may be given again.")
    ] = None,
    out: Out = None,
    experiments: Annotated[Path, typer.Option(help="Folder of the experiments.")] = Path(
        "experiments"
    ),
    docs: Annotated[
        bool, typer.Option("--docs", help="Copy table, figure, slides and numbers to docs/results.")
    ] = False,
    join: Annotated[
        list[Path] | None,
        typer.Option(help="A results.json from elsewhere: its seeds are added to the table."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Warm starts and arms side by side, on CPUs.")
    ] = 1,
) -> None:
    """Run an experiment whole, or what is missing of it, and make its table, figure and slides."""
    from pettingllms.cli.experiments import reproduce_experiment

    reproduce_experiment(name, experiments, quick, seed or [], out, docs, join or [], jobs)


def main() -> None:
    """Run a command; an error that a user can act on is printed without a traceback.

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
