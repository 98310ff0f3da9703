"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer


def shipped_config(path: Path | None) -> Path | None:
    """A path that does not exist may name a config that ships with the package."""
    from pettingllms.runtime.shipped import find_config

    return path and find_config(path)


CONFIG_HELP = "TOML file, or a name from `pettingllms list configs`."
Config = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help=CONFIG_HELP, show_default=False, callback=shipped_config),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Override keys, as in rollout.num_samples=8."),
]
EpisodesOrOverrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="EPISODES|KEY=VALUE", help="Episode files or runs, and overrides of config keys."
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)]
Out = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder to write to.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Checkpoint folder. Default: the latest checkpoint."),
]
EnvName = Annotated[
    str,
    typer.Argument(
        metavar="ENV",
        help="Name from `pettingllms list envs --all`, or file.py:Class.",
        show_default=False,
    ),
]
EnvOptions = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Environment options, such as solo=true."),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VARIABLE",
        help="Environment variable with a server's API key: VARIABLE or ADDRESS=VARIABLE.",
    ),
]
Temperature = Annotated[
    float, typer.Option(min=0, help="Sampling temperature of servers; 0 is greedy.")
]
MaxTokens = Annotated[int, typer.Option(min=1, help="Maximum tokens per reply.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Timeout per reply, in seconds.")]
