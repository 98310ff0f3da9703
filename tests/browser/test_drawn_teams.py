"""The viewer in a real browser: the team that a designer proposed is drawn."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("playwright")
from driving import SHOTS, WAIT, accessibility_violations, opened, served
from playwright.sync_api import Browser, expect

from pettingllms.config import parse_config
from pettingllms.training.collect import collect

pytestmark = pytest.mark.browser
SIZE = {"width": 1280, "height": 900}


def played(folder: Path, player: str, **env: object) -> Path:
    config = parse_config(
        {
            "env": {"id": "team_design-v1", **env},
            "algo": {"type": "grpo"},
            "policies": {"shared": {"kind": "full", "model": "any"}},
            "rollout": {"num_tasks": 2, "num_samples": 2},
        }
    )
    with ThreadPoolExecutor(1) as pool:  # Playwright already runs an event loop in this thread
        pool.submit(collect, config, folder, player).result()
    return folder


@pytest.mark.parametrize("terse", [False, True])
def test_proposed_team_is_drawn(browser: Browser, tmp_path: Path, terse: bool) -> None:
    run = played(tmp_path / "run", "combiner", terse=terse)
    with (
        served(run) as address,
        opened(browser, f"{address}#/episode?run=0&n=1", viewport=SIZE) as page,
    ):
        drawn = page.locator(".team")
        expect(drawn).to_have_count(1, timeout=WAIT)
        assert drawn.locator("rect").count() == 3
        assert drawn.locator("path:not(.tip)").count() == 2
        assert drawn.locator(".answers .name").inner_html() == "executor_3 · answers"
        label = drawn.locator("[role=img]").get_attribute("aria-label")
        assert label is not None
        assert "executor_3 reads no part; hears executor_1, executor_2" in label
        assert accessibility_violations(page) == []
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"team-{'terse' if terse else 'light'}.png")
            page.emulate_media(color_scheme="dark")
            page.screenshot(path=Path(SHOTS) / f"team-{'terse' if terse else 'light'}-dark.png")
