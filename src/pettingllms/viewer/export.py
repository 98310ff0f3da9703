"""Export runs as one self-contained HTML file with learning curves and a sample of episodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pettingllms.runs.folder import write_whole
from pettingllms.viewer.endpoints import Endpoints
from pettingllms.viewer.episode_index import EpisodeIndex
from pettingllms.viewer.page import standalone_page

NUM_EPISODES = 200


def export_page(
    indices: Sequence[EpisodeIndex], path: Path, num_episodes: int = NUM_EPISODES
) -> int:
    """Write the page and return how many episodes it contains, evenly spaced over each run."""
    for index in indices:
        index.update()
    endpoints = Endpoints(indices)
    runs = []
    for run, index in enumerate(indices):
        numbers = evenly_spaced(index, num_episodes)
        runs.append(
            {
                "metrics": endpoints.metrics(run),
                "episodes": [_without_neighbors(endpoints.episode(run, n)) for n in numbers],
            }
        )
    overview = endpoints.overview()
    for one in overview["runs"]:
        one["path"] = one["name"]  # do not leak local paths
    write_whole(path, standalone_page({"overview": overview, "runs": runs}))
    return sum(len(run["episodes"]) for run in runs)


def evenly_spaced(index: EpisodeIndex, count: int) -> list[int]:
    """Row numbers at even distances in order, including the first and the last."""
    numbers = index.numbers()
    if len(numbers) <= count:
        return numbers
    last = len(numbers) - 1
    return [numbers[round(at * last / max(1, count - 1))] for at in range(count)]


def _without_neighbors(episode: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in episode.items() if name not in ("previous", "next")}
