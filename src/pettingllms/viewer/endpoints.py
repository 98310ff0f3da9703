"""The data behind each page as JSON-ready values, for the server and for exported pages."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from pettingllms.errors import ConfigError
from pettingllms.runs.diagnostics import diagnose
from pettingllms.runs.trackers import METRICS_FILE
from pettingllms.viewer.episode import Place, groups_of, shown_episode
from pettingllms.viewer.episode_index import EpisodeIndex
from pettingllms.viewer.query import NO_STEP, EpisodeQuery, visible_row

MAX_POINTS = 600
"""Points per curve; longer runs are averaged."""
DIGITS = 6
MAX_STEP_BYTES = 16_000_000
"""Steps with more bytes of episodes are grouped from the task's episodes only."""
MAX_CACHED = 4
"""Steps whose groups stay cached while a user browses their episodes."""


class Endpoints:
    """Answers the page's requests about the open runs."""

    def __init__(self, indices: Sequence[EpisodeIndex]) -> None:
        self.indices = indices
        self._groups: OrderedDict[tuple[Any, ...], Mapping[Place, Any]] = OrderedDict()

    def overview(self) -> dict[str, Any]:
        """Name, config and progress of each run."""
        return {"runs": [self._run(index) for index in self.indices]}

    def state(self) -> dict[str, Any]:
        """What changes while a run is in progress; the page polls this."""
        return {"runs": [_progress(index) for index in self.indices]}

    def metrics(self, run: int) -> dict[str, Any]:
        """The learning curves and diagnostics of a run."""
        viewed = self._index(run).run
        rows = viewed.metrics()
        diagnostics = [] if viewed.config is None else diagnose(rows, viewed.config)
        return {**metric_columns(rows), "diagnostics": [asdict(one) for one in diagnostics]}

    def episodes(self, run: int, query: EpisodeQuery) -> dict[str, Any]:
        """One page of the episode table."""
        return self._index(run).page(query)

    def episode(self, run: int, n: int) -> dict[str, Any]:
        """One episode, with the comparison group of each turn."""
        index = self._index(run)
        row = index.row(n)
        if row is None:
            raise ConfigError(f"episode {n}", ["is no longer in this run; go back to the table"])
        groups, whole = self._groups_near(index, row)
        shown = shown_episode(index.episode(row), index.run.reward, groups)
        adjacent = index.neighbors(n)
        return {"run": run, "n": n, "row": visible_row(row), "whole": whole, **adjacent, **shown}

    def _groups_near(
        self, index: EpisodeIndex, row: dict[str, Any]
    ) -> tuple[Mapping[Place, Any], bool]:
        if index.run.config is None:
            return {}, True
        whole = index.step_size(row) <= MAX_STEP_BYTES
        task = "" if whole else row["task"]
        # A step that is sampled again gets new numbers.
        key = (str(index.run.folder / row["path"]), task, index.progress())
        if key not in self._groups:
            episodes = index.same_step(row, task)
            self._groups[key] = groups_of(episodes, index.run.config, row["step"])
            while len(self._groups) > MAX_CACHED:
                self._groups.popitem(last=False)
        return self._groups[key], whole

    def _index(self, run: int) -> EpisodeIndex:
        if not 0 <= run < len(self.indices):
            raise ConfigError(
                f"run {run}",
                [f"not found; open runs: 0 to {len(self.indices) - 1}"],
            )
        return self.indices[run]

    def _run(self, index: EpisodeIndex) -> dict[str, Any]:
        run = index.run
        same_name = [other for other in self.indices if other.run.name == run.name]
        name = f"{run.path.resolve().parent.name}/{run.name}" if len(same_name) > 1 else run.name
        return {
            "name": name,
            "path": str(run.path),
            "settings": run.settings,
            "problem": run.problem,
            "versions": run.versions(),
            "trained": sorted(run.config.trained_policies()) if run.config else [],
            "mismatch_bound": run.config.mismatch_bound() if run.config else None,
            **_progress(index),
        }


def _progress(index: EpisodeIndex) -> dict[str, Any]:
    num, last = index.progress()
    metrics = index.run.folder / METRICS_FILE
    return {
        "num_episodes": num,
        "last": last,
        "indexed_share": index.num_bytes_done / index.num_bytes if index.num_bytes else 1.0,
        "metrics_size": metrics.stat().st_size if metrics.is_file() else 0,
    }


def parse_query(parameters: Mapping[str, str]) -> EpisodeQuery:
    """The query in the URL of a request."""
    found: dict[str, Any] = {}
    for field in fields(EpisodeQuery):
        if field.name in parameters:
            given = parameters[field.name]
            kind: Any = type(field.default)
            try:
                found[field.name] = given == "true" if kind is bool else kind(given)
            except ValueError:
                raise ConfigError(field.name, [f"'{given:.40}' is not a number"]) from None
            if kind is int and abs(found[field.name]) > NO_STEP:
                raise ConfigError(field.name, [f"'{given:.40}' is too large"])
    return EpisodeQuery(**found)


def metric_columns(rows: Sequence[dict[str, Any]], max_points: int = MAX_POINTS) -> dict[str, Any]:
    """Metrics as columns for charts; neighboring steps are averaged beyond `max_points`."""
    names = list(dict.fromkeys(name for row in rows for name in row if name != "step"))
    size = -(-len(rows) // max_points) if rows else 1
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    return {
        "num_steps": len(rows),
        "steps_per_point": size,
        "steps": [part[-1]["step"] for part in parts],
        "series": {name: [_mean(part, name) for part in parts] for name in names},
    }


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return float(f"{sum(values) / len(values):.{DIGITS}g}") if values else None
