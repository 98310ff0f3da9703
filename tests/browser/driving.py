"""Drive the viewer: serve runs, and open pages that may only contact their server."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from pettingllms.viewer.episode_index import open_index
from pettingllms.viewer.server import ViewServer
from pettingllms.viewer.sources import open_run

SHOTS = os.environ.get("PETTINGLLMS_SHOTS")
WAIT = 60_000
"""Milliseconds; generous, as the machine may be busy."""


@contextmanager
def served(*paths: Path) -> Iterator[str]:
    indices = [open_index(open_run(path)) for path in paths]
    for index in indices:
        index.update()
    server = ViewServer(indices)
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


@contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A page that fails the test on any error or request to another host."""
    page = browser.new_page(**options)
    page.set_default_timeout(WAIT)
    wrong: list[str] = []
    page.on("request", lambda r: wrong.append(r.url) if not _own(r.url, address) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    page.goto(address)
    yield page
    page.close()
    assert wrong == []


def _own(url: str, address: str) -> bool:
    return url.startswith((address.split("#", maxsplit=1)[0], "data:"))


def accessibility_violations(page: Page) -> list[tuple[str, str]]:
    """Serious accessibility violations found by axe: rule and element."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    serious = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], fault["nodes"][0]["html"][:200]) for fault in serious]
