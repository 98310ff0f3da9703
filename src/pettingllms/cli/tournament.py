"""`tournament`: ratings as a table, a score matrix and a heat map."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pettingllms.api.calls import free_folder
from pettingllms.cli.console import console
from pettingllms.cli.envs import env_with
from pettingllms.evaluation.tournament import (
    Tournament,
    TournamentEntry,
    parse_entries,
    run_tournament,
)
from pettingllms.league.standings import Standings

RESULTS_FILE, PICTURE_FILE = "results.json", "heat_map.png"
SHADES = ((0.8, "#0a5a96", "white"), (0.6, "#6fa9d6", "black"), (0.4, "#f2f0ea", "black"),
          (0.2, "#ee9a5b", "black"), (-1.0, "#b8480a", "white"))  # fmt: skip
"""Minimum score, background and text color of a cell."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the command besides players."""

    num_rounds: int
    seed: int
    temperature: float | None
    keys: Sequence[str]
    out: Path | None
    as_json: bool


def play_tournament(
    env_name: str, options: Sequence[str], players: Sequence[str], settings: Settings
) -> None:
    """Play, print and write the results. An option without `=` counts as a --player."""
    players = [*players, *(word for word in options if "=" not in word)]
    env = env_with(env_name, [word for word in options if "=" in word])
    entries = parse_entries(env, players, settings.keys)
    _warn_of_other_options(env_name, env.config.model_dump(exclude={"id"}), entries)
    tournament = Tournament(env, entries, settings.num_rounds, settings.seed, settings.temperature)
    start = time.perf_counter()
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=settings.as_json) as progress:
        bar = progress.add_task("games", total=tournament.num_games)
        found = run_tournament(
            tournament,
            notify=lambda text: progress.console.print(text, markup=False),
            progress=lambda done: progress.update(bar, completed=done),
        )
    seconds = time.perf_counter() - start
    folder = settings.out or free_folder(Path("runs"), "tournament")
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "env": env.id,
        "options": env.config.model_dump(mode="json", exclude={"id"}),
        "entered": list(players),
        "num_rounds": settings.num_rounds,
        "seed": settings.seed,
        "seconds": round(seconds, 2),
        **found.to_json(),
    }
    (folder / RESULTS_FILE).write_text(json.dumps(data, indent=1), encoding="utf-8")
    drawn = _draw(found, f"{env.id}: score of row against column", folder / PICTURE_FILE)
    if settings.as_json:
        console.out(json.dumps(data), highlight=False)
        return
    _print(found, env.id, seconds)
    also = f" and [bold]{PICTURE_FILE}[/]" if drawn else ""
    console.print(f"[bold]{RESULTS_FILE}[/]{also} are in [bold]{escape(str(folder))}[/]")


def _print(found: Standings, env_id: str, seconds: float) -> None:
    console.print(_standings_table(found, env_id))
    console.print(_matrix(found))
    rate = found.num_games / max(seconds, 1e-9)
    speed = f"{found.num_games:,} games in {seconds:.1f} s ({rate:.0f} per second)"
    console.print(f"{speed}. {found.verdict} ± is two standard deviations.", soft_wrap=True)


def _standings_table(found: Standings, env_id: str) -> Table:
    table = Table(title=f"Tournament, {env_id}", title_justify="left", title_style="bold")
    for name, justify in (("", "right"), ("player", "left"), ("rating", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name in ("won", "drawn", "lost", "points"):
        table.add_column(name, justify="right")
    failed = bool(found.unfinished)
    if failed:
        table.add_column("unfinished", justify="right")
    for at, row in enumerate(found.rows(), start=1):
        rating = f"[bold]{row['rating']:.1f}[/] [dim]± {row['margin']:.1f}[/]"
        counts = [str(row[key]) for key in ("wins", "draws", "losses")]
        cells = [f"[dim]{at}[/]", escape(row["player"]), rating, *counts, f"{row['score']:.0%}"]
        table.add_row(*cells, *([str(row["unfinished"])] if failed else []))
    return table


def _matrix(found: Standings) -> Table:
    """Scores of the row's player against the column's, by color."""
    table = Table(box=None, padding=0, pad_edge=False, collapse_padding=True)
    table.add_column("score against", justify="right", no_wrap=True)
    for at in range(1, len(found.players) + 1):
        table.add_column(f"{at:>3} ", justify="right", no_wrap=True)
    for at, one in enumerate(found.players, start=1):
        cells = [_cell(found, one, other) for other in found.players]
        table.add_row(Text.assemble((f"{at} ", "dim"), f"{one} "), *cells)
    return table


def _cell(found: Standings, one: str, other: str) -> Text:
    tally = found.payoff.between(one, other)
    if one == other or not tally.num_games:
        return Text("  · ", style="dim")
    paper, ink = next((p, i) for least, p, i in SHADES if tally.score >= least)
    return Text(f"{100 * tally.score:3.0f} ", style=f"{ink} on {paper}")


def _draw(found: Standings, title: str, path: Path) -> bool:
    try:
        from pettingllms.experiments.heat_map import draw_heat_map
    except ModuleNotFoundError:
        console.print("[dim]no figure: pip install 'pettingllms\\[figures]'[/]")
        return False
    draw_heat_map(found, title, path)
    return True


def _warn_of_other_options(
    env_name: str, options: dict[str, object], entries: Sequence[TournamentEntry]
) -> None:
    """Warn if a run was trained with other environment options."""
    for one in entries:
        if one.run is None:
            continue
        own = one.run.env.model_dump(exclude={"id"})
        if one.run.env.id != env_name:
            console.print(f"[yellow]{escape(one.name)} was trained on {one.run.env.id}[/]")
            continue
        for key in sorted(k for k in own if own[k] != options.get(k)):
            console.print(
                f"[yellow]{escape(one.name)} was trained with {key}={own[key]}, but plays "
                f"with {key}={options.get(key)}[/]"
            )
