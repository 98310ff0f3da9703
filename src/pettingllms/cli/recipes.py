"""`recipes`: the configs that follow published runs, with hardware, hours and references."""

import json
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.cli.options import Json


def recipes(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="List recipes with this in their name, such as math or l2_8b."
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """List recipes of published runs, with hardware, estimated hours and references."""
    from pettingllms.config.recipes import NEVER_RUN, read_recipes

    found = {name: one for name, one in read_recipes().items() if text.lower() in name}
    if as_json:
        data = {name: {**one.model_dump(), "hours_are": "estimated"} for name, one in found.items()}
        console.out(json.dumps(data), highlight=False)
        return
    run = sum(one.status != NEVER_RUN for one in found.values())
    title = f"Recipes ({run} of {len(found)} were ever run on GPUs)"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    for column in ("hardware", "hours", "published"):
        table.add_column(column)
    for name, one in found.items():
        cells = (one.hardware, one.shown_hours, one.reference or "-")
        table.add_row(f"[bold]{escape(name)}[/]", *map(escape, cells))
    console.print(table)
    console.print(
        "Check one: [bold]pettingllms check recipes/NAME --gpu GPU[/]. Train it: [bold]pettingllms "
        "train recipes/NAME[/]. Hours are estimates. --json also shows sources, and how "
        "each recipe differs from the published run."
    )
