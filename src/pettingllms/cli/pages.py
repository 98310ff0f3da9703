"""What `view` does: a page that is served, or one that is written."""

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from pettingllms.cli.console import console, no_port
from pettingllms.errors import ConfigError
from pettingllms.view.export import export_page
from pettingllms.view.index import Index
from pettingllms.view.runs import open_run
from pettingllms.view.server import ViewServer, serve

MAX_RUNS = 2


def serve_runs(paths: Sequence[Path], port: int, browser: bool) -> None:
    """Serve until Ctrl-C."""
    indices = _indices(paths)
    try:
        server = ViewServer(indices, port)
    except OSError as error:
        raise no_port("127.0.0.1", port, error) from None
    console.print(
        f"Serving {escape(', '.join(map(str, paths)))} at\n  {server.address}\n"
        "for this machine alone. Ctrl-C ends it.",
        soft_wrap=True,
    )
    if browser:
        webbrowser.open(server.address)
    serve(server)


def export_runs(paths: Sequence[Path], out: Path, num_episodes: int) -> None:
    """Write the page as one file."""
    indices = _indices(paths)
    with console.status("reading episodes"):
        written = export_page(indices, out, num_episodes)
        found = sum(index.num_episodes() for index in indices)
    size = out.stat().st_size / 1e6
    console.print(
        f"Written to [bold]{escape(str(out))}[/]: {written} of {found} episodes, {size:.1f} MB"
    )


def _indices(paths: Sequence[Path]) -> list[Index]:
    if len(paths) > MAX_RUNS:
        raise ConfigError(
            "view",
            [f"{len(paths)} runs were given; {MAX_RUNS} stand side by side. `plot` takes more"],
        )
    return [Index(open_run(path)) for path in paths]
