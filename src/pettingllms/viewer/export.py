"""A run as one file that can be mailed: the page, its scripts, the curves and some episodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pettingllms.runs.folder import write_whole
from pettingllms.viewer.endpoints import Answers
from pettingllms.viewer.index import Index
from pettingllms.viewer.page import whole_page

NUM_EPISODES = 200


def export_page(indices: Sequence[Index], path: Path, num_episodes: int = NUM_EPISODES) -> int:
    """Write the page; give how many episodes are in it, spread evenly over each run."""
    for index in indices:
        index.update()
    answers = Answers(indices)
    runs = []
    for run, index in enumerate(indices):
        numbers = chosen(index, num_episodes)
        runs.append(
            {
                "metrics": answers.metrics(run),
                "episodes": [_without_path(answers.episode(run, n)) for n in numbers],
            }
        )
    overview = answers.overview()
    for one in overview["runs"]:
        one["path"] = one["name"]  # where it was on this machine is nobody's business
    write_whole(path, whole_page({"overview": overview, "runs": runs}))
    return sum(len(run["episodes"]) for run in runs)


def chosen(index: Index, count: int) -> list[int]:
    """Rows at even distances, the first and the last among them, in order."""
    with index.open() as db:
        numbers = [row["n"] for row in db.execute("SELECT n FROM episodes ORDER BY step, start")]
    if len(numbers) <= count:
        return numbers
    last = len(numbers) - 1
    return [numbers[round(at * last / max(1, count - 1))] for at in range(count)]


def _without_path(episode: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in episode.items() if name not in ("before", "after")}
