"""`eval --suite`: benchmarks one after another, as a table and a folder of results."""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from pettingllms.cli.console import console, warn
from pettingllms.cli.eval import weights_of
from pettingllms.config import apply_overrides
from pettingllms.errors import ConfigError
from pettingllms.evaluation.suites.bench_data import require_data
from pettingllms.evaluation.suites.comparison import read_baseline
from pettingllms.evaluation.suites.evaluate import run_suite
from pettingllms.evaluation.suites.evaluated import (
    EvaluatedPlayer,
    evaluated_model,
    evaluated_run,
    evaluated_script,
    evaluated_server,
)
from pettingllms.evaluation.suites.results import BENCHES, RESULTS
from pettingllms.evaluation.suites.rollouts import Settings
from pettingllms.evaluation.suites.suite import Changes, Suite, load_suite
from pettingllms.evaluation.suites.suite_report import Report
from pettingllms.evaluation.suites.table import (
    NONE,
    PUBLISHED_TITLE,
    TABLE,
    legend,
    reference_rows,
    remarks,
    short_rows,
    source_lines,
)
from pettingllms.experiments.suite_figure import FIGURE, draw_report
from pettingllms.runs.folder import CONFIG_FILE, slug

ROOT = Path("runs/suites")


@dataclass(frozen=True, slots=True)
class Order:
    """Options of the command."""

    suite: str
    run: str
    player: str
    overrides: Sequence[str]
    checkpoint: Path | None
    policy: str
    num_tasks: int | None
    num_samples: int | None
    benches: Sequence[str]
    options: Sequence[str]
    compare: Path | None
    keys: Sequence[str]
    skip_missing: bool
    out: Path | None
    as_json: bool

    def command(self, settings: Settings) -> str:
        """The command line without defaults."""
        parts = [
            ("--suite", self.suite),
            ("--player", self.player),
            ("--policy", self.policy),
            ("--checkpoint", self.checkpoint),
            ("--tasks", self.num_tasks),
            ("--samples", self.num_samples),
            *(("--bench", name) for name in self.benches),
            *(("--option", text) for text in self.options),
            ("--compare", self.compare),
            ("--seed", settings.seed or None),
            ("--temperature", settings.temperature),
        ]
        given = [str(word) for name, value in parts if value not in ("", None)
                 for word in (name, value)]  # fmt: skip
        words = ["pettingllms", "eval", *([self.run] if self.run else []), *self.overrides, *given]
        return shlex.join([*words, *(["--skip-missing"] if self.skip_missing else [])])

    def suite_to_run(self) -> Suite:
        """The suite with the benchmarks, numbers and options that were asked for."""
        options: dict[str, Any] = {}
        if problems := apply_overrides(options, self.options):
            raise ConfigError("--option", problems)
        changes = Changes(
            num_tasks=self.num_tasks,
            num_samples=self.num_samples,
            options=options,
            names=self.benches,
        )
        return load_suite(self.suite).changed(changes)

    def changed(self, settings: Settings) -> list[str]:
        """Options that replace numbers of the benchmarks."""
        parts = [
            ("--tasks", self.num_tasks),
            ("--samples", self.num_samples),
            *(("--option", text) for text in self.options),
            ("--temperature", settings.temperature),
        ]
        return [f"{name} {value}" for name, value in parts if value is not None]


def evaluate_suite(order: Order, settings: Settings) -> None:
    """Run the missing benchmarks of a suite; exit code 1 if one has no result."""
    suite = order.suite_to_run()
    baseline = read_baseline(order.compare) if order.compare else None
    if not order.skip_missing:
        require_data(suite)
    evaluated = _evaluated(order, settings)
    report = Report(suite, evaluated, settings, order.command(settings))
    report.changed, report.baseline = order.changed(settings), baseline
    folder = order.out or ROOT / slug(Path(order.suite).stem) / slug(
        f"{evaluated.kind} {evaluated.name}"
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        _resumable(folder),
        Progress(*columns, console=console, transient=True, disable=order.as_json) as progress,
    ):
        bar = progress.add_task("preparing", total=None)
        run_suite(
            report,
            folder,
            notify=warn if order.as_json else lambda text: progress.console.print(escape(text)),
            skip_missing=order.skip_missing,
            progress=lambda name, done, total: progress.update(
                bar, description=escape(name), completed=done, total=total
            ),
        )
    drawn = draw_report(report, folder / FIGURE)
    if order.as_json:
        console.out(json.dumps(report.to_json()), highlight=False)
    else:
        _print(report)
        files = ", ".join([RESULTS, TABLE, *([FIGURE] if drawn else [])])
        console.print(f"{files} are in [bold]{escape(str(folder))}[/]", soft_wrap=True)
        if find_spec("matplotlib") is None:
            console.print("[dim]no figure: pip install 'pettingllms\\[figures]'[/]")
    if report.unmeasured or not report.results:
        raise typer.Exit(1)


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """On Ctrl-C, report the finished benchmarks; the same command runs the rest."""
    try:
        yield
    except KeyboardInterrupt:
        num_done = len(list((folder / BENCHES).glob("*.json")))
        where = escape(str(folder))
        console.print(
            f"\nStopped. {num_done} benchmarks are in {where}; run the same command to continue."
        )
        raise typer.Exit(130) from None


def _evaluated(order: Order, settings: Settings) -> EvaluatedPlayer:
    """The player to evaluate; options of another kind of player are rejected."""
    if problems := list(_misfits(order)):
        raise ConfigError("eval --suite", problems)
    if order.player:
        return evaluated_script(order.player)
    if _is_address(order.run):
        heat = 1.0 if settings.temperature is None else settings.temperature
        return evaluated_server(order.run, order.keys, heat)
    place = Path(order.run)
    if place.is_file() or (place / CONFIG_FILE).is_file():
        config, saved = weights_of(place, order.overrides, order.checkpoint)
        return evaluated_run(place, config, saved, order.policy)
    return evaluated_model(order.run, order.overrides)


def _misfits(order: Order) -> Iterator[str]:
    if bool(order.run) == bool(order.player):
        yield "give either RUN (a run, a model, an address) or --player NAME"
    if order.keys and not _is_address(order.run):
        yield "--key is for servers; leave it out"
    if (order.checkpoint or order.policy) and (order.player or _is_address(order.run)):
        yield "--checkpoint and --policy are for runs; leave them out"
    if order.overrides and (order.player or _is_address(order.run)):
        listed = " ".join(order.overrides)
        yield f"'{listed}' has no effect without a config; leave it out"


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _print(report: Report) -> None:
    _print_table(f"{report.suite.title}: {report.evaluated.name}", short_rows(report), 2)
    for line in (*remarks(report), legend(report, short=True)):
        console.print(escape(line))
    if published := reference_rows(report):
        _print_table(PUBLISHED_TITLE, published, 4)
        for line in source_lines(report):
            console.print(escape(line))


def _print_table(title: str, table_rows: list[list[str]], num_texts: int) -> None:
    """Print a table without columns that say nothing; the first columns are texts."""
    head, *rows = table_rows
    table = Table(
        title=escape(title), title_justify="left", title_style="bold", box=None, padding=(0, 1)
    )
    shown = [at for at in range(len(head)) if any(row[at] not in ("0", NONE) for row in rows)]
    for at in shown:
        is_text = at < num_texts
        table.add_column(head[at], justify="left" if is_text else "right", no_wrap=not is_text)
    for row in rows:
        table.add_row(*(escape(row[at]) for at in shown))
    console.print(table)
