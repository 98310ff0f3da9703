"""Commands of `pettingllms data`."""

from typing import Annotated

import typer

data_app = typer.Typer(help="List, download, show and compare data sets.", no_args_is_help=True)
Source = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of `data list`, hf:OWNER/NAME, or a file.", show_default=False
    ),
]


@data_app.command("list")
def data_list() -> None:
    """List published data sets, and what is on this machine."""
    from pettingllms.cli.data import list_data

    list_data()


@data_app.command("get")
def data_get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Such as gsm8k, anli/r2, apps:test or hf:OWNER/NAME.",
            show_default=False,
        ),
    ],
    revision: Annotated[
        str, typer.Option(help="Commit, tag or branch. Default: that of `data list`.")
    ] = "",
    max_gb: Annotated[float, typer.Option(help="Refuse to download more than this.")] = 20.0,
) -> None:
    """Download a data set, or verify the one on this machine."""
    from pettingllms.cli.data import get

    get(name, revision, max_gb)


@data_app.command("show")
def data_show(
    name: Source,
    split: Annotated[str, typer.Option(help="train or test. Default: train, if it has one.")] = "",
    rows: Annotated[int, typer.Option(min=0, help="Number of rows to print.")] = 3,
) -> None:
    """Print the origin, license, number of rows and first rows of a data set."""
    from pettingllms.cli.data import show

    show(name, split, rows)


@data_app.command("overlap")
def data_overlap(
    train: Annotated[
        str, typer.Argument(metavar="TRAIN", help="Training set.", show_default=False)
    ],
    tests: Annotated[
        list[str], typer.Argument(metavar="TEST...", help="Test sets.", show_default=False)
    ],
    examples: Annotated[
        int, typer.Option(min=0, help="Number of shared questions to print per test set.")
    ] = 3,
) -> None:
    """Report test questions that are also training questions; exit code 1 if there are any."""
    from pettingllms.cli.data import overlap

    if overlap(train, tests, examples):
        raise typer.Exit(1)
