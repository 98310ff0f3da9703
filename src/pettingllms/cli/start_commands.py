"""Commands of the panel Start: `quickstart`, `init`, `check`, `list` and `play`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from pettingllms.cli.options import (
    EnvName,
    EnvOptions,
    Json,
    Keys,
    MaxTokens,
    Overrides,
    Seconds,
    Seed,
    Temperature,
    shipped_config,
)


def quickstart(
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="New or empty folder to write to.")
    ] = None,
    open_view: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Open the viewer in a browser afterward. Default: on a terminal.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a tiny team on this machine's CPU in about four minutes."""
    from pettingllms.cli.console import console
    from pettingllms.cli.quickstart import run_quickstart
    from pettingllms.cli.view import serve_runs

    run = run_quickstart(out, overrides or [])
    if console.is_terminal if open_view is None else open_view:
        serve_runs([run], 0, browser=True)


def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="New or empty folder.", show_default=False),
    ],
    describe: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Let an LLM draft the environment of this description."),
    ] = "",
    url: Annotated[
        str, typer.Option(metavar="URL", help="OpenAI-compatible server for --describe.")
    ] = "",
    model: Annotated[str, typer.Option(help="Model of the server, for --describe.")] = "",
    key: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Environment variable with the API key.")
    ] = "",
    tries: Annotated[
        int, typer.Option(min=1, max=10, help="Maximum number of drafts, for --describe.")
    ] = 3,
) -> None:
    """Create a project: an environment, a config that trains it, a test and a README."""
    if not describe:
        from pettingllms.cli.init import make_project

        make_project(folder)
        return
    if not (url and model):
        raise typer.BadParameter(
            "needs --url and --model: the server that drafts", param_hint="--describe"
        )
    from pettingllms.cli.describe import Endpoint, describe_project

    describe_project(folder, describe, Endpoint(url, model, key), tries)


def check(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG",
            help="TOML file or name of a shipped config. Default: check the machine alone.",
            show_default=False,
            callback=shipped_config,
        ),
    ] = None,
    overrides: Overrides = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder that the run would write to.")
    ] = Path("runs"),
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Plan the memory of CONFIG on these GPUs instead of this machine: a name such as "
            "h100-80, or an amount such as 80GiB.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Print the layout of CONFIG on this many nodes. Default: 1."),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-node",
            "--gpus",
            min=1,
            help="Print the layout of CONFIG with this many GPUs per node. Default: 8.",
        ),
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="With --gpu: memory of a node, such as 1024GiB."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine, or validate a config against it or other GPUs and list all problems."""
    from pettingllms.cli.check import check_config, check_machine
    from pettingllms.errors import ConfigError

    if gpu is not None:
        from pettingllms.cli.check_plan import check_plan
        from pettingllms.preflight.hardware import find_hardware

        if config is None:
            raise ConfigError("--gpu", ["plans the memory of a config; give a TOML file"])
        hardware = find_hardware(gpu, nodes or 1, gpus_per_node or 8, host_memory)
        check_plan(config, overrides or [], hardware, as_json)
    elif nodes is not None or gpus_per_node is not None:
        from pettingllms.cli.check_layout import check_layout

        if config is None:
            raise ConfigError("--nodes", ["prints the layout of a config; give a TOML file"])
        check_layout(config, overrides or [], nodes or 1, gpus_per_node or 8, as_json)
    elif config is None:
        check_machine(as_json)
    else:
        check_config(config, overrides or [], out, as_json)


def doctor(as_json: Json = False) -> None:
    """Check this machine: the same as `check` without a config."""
    check(as_json=as_json)


def list_names(
    what: Annotated[
        Literal["envs", "algos", "configs", "suites"],
        typer.Argument(
            metavar="envs|algos|configs|suites", help="What to list.", show_default=False
        ),
    ] = "envs",
    every: Annotated[
        bool, typer.Option("--all", help="Include games of OpenSpiel, PettingZoo and TextArena.")
    ] = False,
) -> None:
    """List environments, algorithms, the configs that ship with the package, or test suites."""
    from pettingllms.cli.envs import list_algos, list_configs, list_envs, list_library_games

    if what == "algos":
        list_algos()
        return
    if what == "configs":
        list_configs()
        return
    if what == "suites":
        from pettingllms.cli.suites import list_suites

        list_suites()
        return
    list_envs()
    if every:
        list_library_games()


def envs(
    every: Annotated[bool, typer.Option("--all", help="Include games of libraries.")] = False,
) -> None:
    """List environments: the same as `list envs`."""
    list_names("envs", every)


def algos() -> None:
    """List algorithms: the same as `list algos`."""
    list_names("algos")


def play(
    env: EnvName,
    options: EnvOptions = None,
    player: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=PLAYER",
            help="Who plays a role: ROLE=human, a scripted player, a run folder or "
            "http://HOST:PORT/v1. Default: 'random'.",
        ),
    ] = None,
    watch: Annotated[
        str | None, typer.Option(metavar="PLAYER", help="Let this player play all roles.")
    ] = None,
    task: Annotated[int, typer.Option(min=0, help="Index of the task.")] = 0,
    seed: Seed = 0,
    delay: Annotated[float, typer.Option(min=0, help="Seconds between moves.")] = 0.3,
    key: Keys = None,
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = 512,
    seconds: Seconds = 120.0,
) -> None:
    """Play an environment in the terminal, or watch others play it."""
    from pettingllms.cli.play import Game, play_game

    game = Game.of(env, options or [], player or [], watch, task, seed, delay)
    play_game(game.with_servers(key or [], temperature, max_tokens, seconds))
