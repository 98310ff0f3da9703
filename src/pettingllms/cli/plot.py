"""`plot` and `report`: learning curves, and a one-page summary of a run."""

import base64
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.errors import ConfigError
from pettingllms.experiments.curves import Panel, PlotOptions, make_panels, short, spark
from pettingllms.experiments.run_report import run_report_page
from pettingllms.runs.folder import write_whole
from pettingllms.viewer.sources import ViewedRun, open_run

WIDTH = 24
"""Characters of a curve in the terminal."""
PICTURES = (".png", ".svg")
PAGES = (".md", ".html")


def plot_runs(paths: Sequence[Path], out: Path | None, wish: PlotOptions) -> None:
    """Draw learning curves to a file or the terminal."""
    runs = [open_run(path) for path in paths]
    if wish.x not in ("step", "tokens"):
        raise ConfigError("--x", [f"'{wish.x}' is not an axis; give step or tokens"])
    panels = make_panels(runs, wish)
    if not panels:
        raise ConfigError(
            ", ".join(map(str, paths)), ["has no metrics yet; a run writes them after every step"]
        )
    if out is None:
        _print(panels)
        return
    _check_name(out, PICTURES)
    _draw(runs, panels, wish, out)
    console.print(f"Written to [bold]{escape(str(out))}[/]")


def report_run(path: Path, out: Path | None) -> None:
    """Write the report of a run, with a figure if matplotlib is installed, or print it."""
    run = open_run(path)
    if out is None:
        console.print(Markdown(run_report_page(run).to_markdown()))
        return
    _check_name(out, PAGES)
    page = run_report_page(run, _figure(run, out))
    write_whole(out, page.to_html() if out.suffix == ".html" else page.to_markdown())
    console.print(f"Written to [bold]{escape(str(out))}[/]")


def _figure(run: ViewedRun, page: Path) -> str:
    """A figure beside a Markdown page or inside an HTML page; empty without matplotlib."""
    panels = make_panels([run], PlotOptions())
    if find_spec("matplotlib") is None or not panels:
        return ""
    if page.suffix == ".md":
        _draw([run], panels, PlotOptions(), page.with_suffix(".png"))
        return page.with_suffix(".png").name
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "figure.png"
        _draw([run], panels, PlotOptions(), picture)
        return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()


def _draw(runs: Sequence[ViewedRun], panels: Sequence[Panel], wish: PlotOptions, out: Path) -> None:
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "plot",
            ["a figure needs matplotlib; pip install 'pettingllms[figures]', or leave out --out"],
        )
    from pettingllms.experiments.curve_figure import draw_learning_curves

    title = ", ".join(dict.fromkeys(run.name for run in runs))
    draw_learning_curves(panels, title, "sampled tokens" if wish.x == "tokens" else "step", out)


def _check_name(out: Path, kinds: Sequence[str]) -> None:
    if out.suffix not in kinds:
        raise ConfigError("--out", [f"'{out.name}' must end in {' or '.join(kinds)}"])


def _print(panels: Sequence[Panel]) -> None:
    several = len({line.arm for panel in panels for line in panel.lines}) > 1
    table = Table("metric", "of", box=None, pad_edge=False)
    for name in ("first", "curve", "last"):
        table.add_column(name, no_wrap=True)
    for panel in panels:
        for at, line in enumerate(panel.lines):
            name = " · ".join(filter(None, [line.arm if several else "", line.part])) or "all"
            ends = (line.y[0], line.y[-1])
            first, last = (f"{y:.1%}" if panel.is_share else short(y) for y in ends)
            table.add_row(
                panel.title if at == 0 else "",
                escape(name),
                first,
                spark(line.y, WIDTH),
                last,
            )
    console.print(table)
