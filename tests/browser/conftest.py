"""Chromium: the machine's own, else the one that Playwright fetched."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = shutil.which("chromium") or shutil.which("chromium-browser")
        arguments = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []
        made = playwright.chromium.launch(executable_path=own, args=arguments)
        yield made
        made.close()
