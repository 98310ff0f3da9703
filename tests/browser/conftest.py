"""Chromium: the system's, or the one that Playwright installed."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


def chromium(playwright: Any) -> Any:
    """A headless browser. Chromium's sandbox does not work as root."""
    own = shutil.which("chromium") or shutil.which("chromium-browser")
    arguments = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    return playwright.chromium.launch(executable_path=own, args=arguments)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = chromium(playwright)
        yield made
        made.close()
