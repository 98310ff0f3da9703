"""The viewer in a real browser: judge verdicts and prompt images."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("playwright")
from driving import SHOTS, WAIT, accessibility_violations, opened, served
from hostile import HOSTILE
from playwright.sync_api import Browser, Page, expect

from pettingllms.config import parse_config
from pettingllms.training.collect import collect
from pettingllms.types import Failed, Rewards, read_episodes, write_episodes
from pettingllms.viewer.episode_index import open_index
from pettingllms.viewer.export import export_page
from pettingllms.viewer.sources import open_run

pytestmark = pytest.mark.browser
SIZE = {"width": 1280, "height": 900}
SHARED = {"kind": "full", "model": "any"}


def played(folder: Path, player: str, **sections: object) -> Path:
    config = parse_config({"policies": {"shared": SHARED}, **sections})
    with ThreadPoolExecutor(1) as pool:  # Playwright already runs an event loop in this thread
        pool.submit(collect, config, folder, player).result()
    return folder


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(
        tmp_path_factory.mktemp("stories") / "run",
        "noisy",
        env={"id": "story-v1"},
        algo={"type": "grpo"},
        judge={"by": "rule", "against": "group"},
        rollout={"num_tasks": 2, "num_samples": 4},
    )


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("PIL")
    return played(
        tmp_path_factory.mktemp("relay") / "run",
        "honest",
        env={"id": "visual_relay-v1"},
        algo={"type": "grpo"},
        policies={"shared": SHARED, "vision": {"kind": "scripted", "player": "honest"}},
        roles={"looker": "vision", "mover": "shared"},
        rollout={"num_tasks": 2, "num_samples": 2},
    )


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


def test_turn_shows_submission_and_verdict(browser: Browser, stories: Path) -> None:
    episode = next(iter(read_episodes(stories / "episodes.jsonl")))
    last = episode.steps[episode.last or 0]
    (submission,) = last.submissions.values()
    with (
        served(stories) as address,
        opened(browser, f"{address}#/episode?run=0&n=1", viewport=SIZE) as page,
    ):
        judged = page.locator(".reply .judged")
        expect(judged.first).to_be_visible(timeout=WAIT)
        assert judged.count() == len(episode.turns), "every turn is rewarded by the story's verdict"
        assert f"{last.metrics['judged']:.3f}" in judged.first.inner_text()
        assert not judged.first.locator("dl").is_visible()
        judged.first.locator("summary").click()
        texts = judged.first.locator("dd .plain-text")
        assert submission.question in texts.all_inner_texts()
        assert submission.answer in texts.all_inner_texts()
        shot(page, "judged-light")
        assert accessibility_violations(page) == []
        page.emulate_media(color_scheme="dark")
        page.reload()
        expect(judged.first).to_be_visible(timeout=WAIT)
        judged.first.locator("summary").click()
        shot(page, "judged-dark")
        assert accessibility_violations(page) == []


def test_failed_verdict_shows_its_reason_and_hostile_answers_are_text(
    browser: Browser, stories: Path, tmp_path: Path
) -> None:
    import dataclasses

    episodes = list(read_episodes(stories / "episodes.jsonl"))
    for episode in episodes:
        step = episode.steps[episode.last or 0]
        step.metrics = {}
        step.rewards = Rewards(step.rewards.process, team=Failed("the judge was silent", "judge"))
        shown = {r: dataclasses.replace(e, answer=HOSTILE[0]) for r, e in step.submissions.items()}
        step.submissions = shown
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.toml").write_text((stories / "config.toml").read_text())
    write_episodes(tmp_path / "run/episodes.jsonl", episodes)
    with (
        served(tmp_path / "run") as address,
        opened(browser, f"{address}#/episode?run=0&n=1", viewport=SIZE) as page,
    ):
        judged = page.locator(".reply .judged").first
        expect(judged).to_contain_text("failed", timeout=WAIT)
        judged.locator("summary").click()
        expect(judged.locator(".failure")).to_contain_text("the judge was silent")
        assert judged.locator("dd .plain-text").last.text_content() == HOSTILE[0]
        assert page.locator("article script, article a, article iframe").count() == 0


@pytest.mark.parametrize("exported", [False, True], ids=["served", "file"])
def test_prompt_images_appear_in_their_role_only(
    browser: Browser, relay: Path, tmp_path: Path, exported: bool
) -> None:
    export_page([open_index(open_run(relay))], tmp_path / "x.html")
    with served(relay) as served_at:
        address = (tmp_path / "x.html").as_uri() if exported else served_at
        with opened(browser, f"{address}#/episode?run=0&n=1", viewport=SIZE) as page:
            pictures = page.locator("img.picture")
            expect(pictures.first).to_be_visible(timeout=WAIT)
            assert page.locator(".lane").nth(0).locator("img").count() == 1, "the looker"
            assert pictures.count() == 1, "not the mover"
            assert pictures.first.evaluate("image => image.complete && image.naturalWidth") > 50
            assert pictures.first.get_attribute("alt")
            shot(page, f"seen-{'file' if exported else 'served'}")
            assert accessibility_violations(page) == []
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
