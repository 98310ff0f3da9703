"""`view`: serve the viewer of a run, or export it as one HTML file."""

import html
import os
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.markup import escape

from pettingllms.cli.console import console, no_port
from pettingllms.errors import ConfigError
from pettingllms.viewer.episode_index import EpisodeIndex, open_index
from pettingllms.viewer.export import export_page
from pettingllms.viewer.server import ViewServer, serve
from pettingllms.viewer.sources import open_run

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
        "on this machine only. Press Ctrl-C to stop.",
        soft_wrap=True,
    )
    with in_browser(server.address) if browser else nullcontext():
        serve(server)


@contextmanager
def in_browser(address: str) -> Iterator[None]:
    """Open a page whose address contains a key.

    All users of a machine can read the command line of a browser. So the browser is started with
    the path of a file that only this user can read, and the file leads to the address.
    """
    with tempfile.TemporaryDirectory(prefix="pettingllms-view-") as folder:
        file = Path(folder) / "open.html"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as written:
            target = html.escape(address)
            written.write(
                '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0; url={target}">'
                f'<title>PettingLLMs</title><a href="{target}">Open the viewer</a>\n'
            )
        webbrowser.open(file.as_uri())
        yield


def export_runs(paths: Sequence[Path], out: Path, num_episodes: int) -> None:
    """Export the viewer as one file."""
    indices = _indices(paths)
    with console.status("reading episodes"):
        written = export_page(indices, out, num_episodes)
        found = sum(index.num_episodes() for index in indices)
    size = out.stat().st_size / 1e6
    console.print(
        f"Written to [bold]{escape(str(out))}[/]: {written} of {found} episodes, {size:.1f} MB"
    )


def _indices(paths: Sequence[Path]) -> list[EpisodeIndex]:
    if len(paths) > MAX_RUNS:
        raise ConfigError(
            "view",
            [f"got {len(paths)} runs; expected at most {MAX_RUNS}. `plot` takes more"],
        )
    return [open_index(open_run(path)) for path in paths]
