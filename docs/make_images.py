"""Make the pictures of the README: the viewer's tree rollout, and a learning curve.

    python docs/make_images.py [--curve-only]

The tree comes from scripted players with real credit assignment, so it needs no model. The curve is
drawn by `pettingllms plot` from the example run.
"""

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests" / "helpers"))

from viewed import rolled, with_tokens, write_run  # noqa: E402 - lives with the tests

from pettingllms.cli.plot import plot_runs  # noqa: E402
from pettingllms.experiments.curves import PlotOptions  # noqa: E402
from pettingllms.types import Episode  # noqa: E402
from pettingllms.viewer.index import Index  # noqa: E402
from pettingllms.viewer.server import ViewServer  # noqa: E402
from pettingllms.viewer.sources import open_run  # noqa: E402

IMAGES = DOCS / "images"
RUN = DOCS.parent / "examples" / "a_run"
SIZE = {"width": 1280, "height": 800}
OPTIONS = ("env.width=5", "env.height=5", "env.max_rounds=3", "rollout.select=sampled")


def draw_curve() -> None:
    """The learning curves of the example run, under a title that explains it."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "Signaling game: two policies trained together with AT-GRPO"
        shutil.copytree(RUN, run)
        plot_runs([run], IMAGES / "learning_curve.png", PlotOptions(metrics=("success", "reward")))


def draw_tree() -> None:
    """The page of the episode with the most decisions and the most varied advantages."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        episodes = [with_tokens(one) for one in rolled(folder / "rollout", 300, *OPTIONS)]
        write_run(folder / "plan_path", episodes, 1, *OPTIONS)
        index = Index(open_run(folder / "plan_path"))
        index.update()
        best = max(episodes, key=_interest)
        with index.open() as db:
            (n,) = db.execute("SELECT n FROM episodes WHERE id = ?", (best.id,)).fetchone()
        _take_screenshot(index, n, IMAGES / "viewer_tree.png")


def _interest(episode: Episode) -> tuple[bool, int, int]:
    first = [turn for turn in episode.turns if turn.messages == episode.turns[0].messages]
    num_texts = len({turn.text for turn in first if turn.credit.advantage})
    compared = {turn.messages for turn in episode.turns if turn.credit.advantage}
    return num_texts > 1, len(compared), num_texts


def _take_screenshot(index: Index, n: int, path: Path) -> None:
    from playwright.sync_api import sync_playwright

    with ViewServer([index]) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        system = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=system, args=arguments)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(f"{server.address}#/episode?run=0&n={n}")
        page.locator(".reply").first.wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=path)
        browser.close()
        server.shutdown()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_curve()
    if "--curve-only" not in sys.argv:
        draw_tree()
