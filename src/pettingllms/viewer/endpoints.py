"""What the page asks for, as plain data: the same for the server and for a page in one file."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from pettingllms.errors import ConfigError
from pettingllms.runs.diagnostics import diagnose
from pettingllms.runs.trackers import METRICS_FILE
from pettingllms.viewer.comparison import Place, groups_of
from pettingllms.viewer.curves import columns
from pettingllms.viewer.episode import shown_episode
from pettingllms.viewer.index import Index
from pettingllms.viewer.query import NO_STEP, Question, answer, neighbours, shown_row

MAX_STEP_BYTES = 16_000_000
"""Episodes of a step that are read to find out what was compared; of a larger one, the task's."""
MAX_KEPT = 4
"""Steps whose comparisons are remembered, for a reader who goes from episode to episode."""


class Answers:
    """Everything about the runs that are looked at."""

    def __init__(self, indices: Sequence[Index]) -> None:
        self.indices = indices
        self._groups: OrderedDict[tuple[str, str], Mapping[Place, Any]] = OrderedDict()

    def overview(self) -> dict[str, Any]:
        """What the runs are, before anything is drawn."""
        return {"runs": [self._run(index) for index in self.indices]}

    def state(self) -> dict[str, Any]:
        """What changes while a run goes on: the page asks again and again."""
        return {"runs": [_progress(index) for index in self.indices]}

    def metrics(self, run: int) -> dict[str, Any]:
        """The curves of a run, and what to worry about."""
        viewed = self._index(run).run
        rows = viewed.metrics()
        found = [] if viewed.config is None else diagnose(rows, viewed.config)
        return {**columns(rows), "diagnostics": [asdict(diagnosis) for diagnosis in found]}

    def episodes(self, run: int, question: Question) -> dict[str, Any]:
        """A page of the table."""
        return answer(self._index(run), question)

    def episode(self, run: int, n: int) -> dict[str, Any]:
        """One episode, with whom each of its turns was compared."""
        index = self._index(run)
        row = index.row(n)
        if row is None:
            raise ConfigError(f"episode {n}", ["is not in this run any more; go back to the table"])
        groups, whole = self._compared(index, row)
        shown = shown_episode(index.episode(row), index.run.reward, groups)
        around = neighbours(index, n)
        return {"run": run, "n": n, "row": shown_row(row), "whole": whole, **around, **shown}

    def _compared(self, index: Index, row: dict[str, Any]) -> tuple[Mapping[Place, Any], bool]:
        if index.run.config is None:
            return {}, True
        whole = index.step_size(row) <= MAX_STEP_BYTES
        task = "" if whole else row["task"]
        key = (str(index.run.folder / row["path"]), task)
        if key not in self._groups:
            episodes = index.same_step(row, task)
            self._groups[key] = groups_of(episodes, index.run.config, row["step"])
            while len(self._groups) > MAX_KEPT:
                self._groups.popitem(last=False)
        return self._groups[key], whole

    def _index(self, run: int) -> Index:
        if not 0 <= run < len(self.indices):
            raise ConfigError(f"run {run}", [f"there are {len(self.indices)}, counted from 0"])
        return self.indices[run]

    def _run(self, index: Index) -> dict[str, Any]:
        run = index.run
        alike = [other for other in self.indices if other.run.name == run.name]
        name = f"{run.path.resolve().parent.name}/{run.name}" if len(alike) > 1 else run.name
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


def _progress(index: Index) -> dict[str, Any]:
    with index.open() as db:
        num, last = db.execute("SELECT COUNT(*), MAX(n) FROM episodes").fetchone()
    metrics = index.run.folder / METRICS_FILE
    return {
        "num_episodes": num,
        "last": last,
        "read": index.num_bytes_done / index.num_bytes if index.num_bytes else 1.0,
        "metrics_size": metrics.stat().st_size if metrics.is_file() else 0,
    }


def question_of(asked: Mapping[str, str]) -> Question:
    """The question in the address of a request."""
    found: dict[str, Any] = {}
    for field in fields(Question):
        if field.name in asked:
            given = asked[field.name]
            kind: Any = type(field.default)
            try:
                found[field.name] = given == "true" if kind is bool else kind(given)
            except ValueError:
                raise ConfigError(field.name, [f"'{given:.40}' is no number"]) from None
            if kind is int and abs(found[field.name]) > NO_STEP:
                raise ConfigError(field.name, [f"'{given:.40}' is too large a number"])
    return Question(**found)
