"""`search-team`: search for a team graph, print the best ones and write the curve."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pettingllms.cli.options import EnvOptions, Json, Keys, Out, Seed

RESULTS_FILE = "results.json"


def search_team(
    options: EnvOptions = None,
    executors: Annotated[
        str,
        typer.Option(
            metavar="PLAYER",
            help="Player of all executors: a scripted player, a run folder, or a server "
            "http://HOST/v1#MODEL.",
        ),
    ] = "noisy",
    episodes: Annotated[int, typer.Option(min=1, help="Total number of episodes.")] = 4000,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after the generation that reaches this many tokens."),
    ] = None,
    seed: Seed = 0,
    key: Keys = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Search for the best team of team_design-v1 by evolution, with frozen executors."""
    from pettingllms.api.calls import free_folder
    from pettingllms.cli.console import console, warn
    from pettingllms.cli.envs import env_with
    from pettingllms.evaluation.team_search import TeamSearch
    from pettingllms.evaluation.team_search import search_team as run_search

    env = env_with("team_design-v1", options or [])
    values = env.config.model_dump(exclude={"id"}, exclude_unset=True)
    search = TeamSearch(
        executors, episodes, max_tokens, seed, options=values, keys=tuple(key or [])
    )
    found = run_search(search, notify=warn)
    data = {"executors": executors, "seed": seed, "options": values, **found.to_json()}
    folder = out or free_folder(Path("runs"), "search_team")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS_FILE).write_text(json.dumps(data, indent=1), encoding="utf-8")
    if as_json:
        console.out(json.dumps(data), highlight=False)
        return
    for one in found.graphs:
        line = f"{one['return']:.3f}  {one['episodes']} episodes  {one['graph']}"
        console.print(line, markup=False)
    console.print(f"best design: {data['design']}\nwrote {folder / RESULTS_FILE}", markup=False)
