"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Such as rollout.num_samples=8."),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Out = Annotated[Path | None, typer.Option(help="Folder to write to.")]
Checkpoint = Annotated[Path | None, typer.Option(help="Folder of a checkpoint; else the newest.")]
EnvName = Annotated[
    str, typer.Argument(metavar="ENV", help="As in `pettingllms envs --all`, or file.py:Class.")
]
Keys = Annotated[
    list[str] | None,
    typer.Option(help="Environment variable with a server's key: VARIABLE or ADDRESS=VARIABLE."),
]
Temperature = Annotated[float, typer.Option(min=0, help="Of servers' sampling; 0 is greedy.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Tokens of one reply of a model.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="How long one reply of a model may take.")]
EnvOptions = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Options of the environment, such as solo=true."),
]
