"""Trackers: a metrics file in the run folder, and the services that a run logs to."""

import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from contextvars import copy_context
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig, to_toml
from pettingllms.errors import ConfigError, describe
from pettingllms.registry import TRACKERS

METRICS_FILE = "metrics.jsonl"
MAX_FAILURES = 3
"""Failures in a row after which a tracker is disabled."""
NOT_IN_MLFLOW = re.compile(r"[^\w./ -]")
"""Characters, such as the ~ in a player's name, for which MLflow rejects all metrics of a step."""
SERVICES = ("tensorboard", "wandb", "mlflow", "trackio")
"""Keys of [log] that enable a tracker. Each is also the name of its package and of its extra."""


class Tracker:
    """Base class of trackers. Override `log`, and `close` if there is something to close.

    Name the class in `log.trackers`, for example "my_tracker.py:MyTracker". It is created with the
    configuration and the run folder. An exception in a tracker never stops the run.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        """Start tracking, or continue if the run is resumed."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take the metrics of a step, under keys such as "roles/planner/reward".

        Called again with further metrics of the last step if its evaluation ended later.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Finish: no more metrics follow."""


class JsonLines(Tracker):
    """One JSON object per line, on disk before `log` returns.

    Numbers that are not finite are written as null. On resume, a line that a crash cut short is
    dropped. If a step has several lines, the last one counts: it has all metrics.
    """

    def __init__(self, path: Path) -> None:
        self._last = _drop_cut_line(path)
        self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        finite = {key: value if math.isfinite(value) else None for key, value in values.items()}
        before = self._last if self._last.get("step") == step else {"step": step}
        self._last = {**before, **finite}
        self._file.write(json.dumps(self._last, allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class TensorBoard(Tracker):
    """Event files in the run folder, written by TensorBoard's own writer, without torch."""

    def __init__(self, config: RunConfig, folder: Path) -> None:  # noqa: ARG002 - as all trackers
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        self._event = import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._writer = writer.EventFileWriter(str(folder / "tensorboard"))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        scalars = [self._summary.Value(tag=tag, simple_value=v) for tag, v in values.items()]
        summary = self._summary(value=scalars)
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Wandb(Tracker):
    """A run in a Weights & Biases project; `resume` continues the same W&B run.

    Console output is not uploaded, because libraries may print secrets.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        wandb = import_module("wandb")
        path = folder / "wandb.id"
        if not path.exists():
            path.write_text(secrets.token_hex(8), encoding="utf-8")
        self._run = wandb.init(
            project=config.log.wandb,
            name=folder.name,
            id=path.read_text(encoding="utf-8"),
            resume="allow",
            dir=str(folder),
            config=config.model_dump(mode="json"),
            settings=wandb.Settings(console="off"),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Mlflow(Tracker):
    """A run of an MLflow experiment; `resume` continues the same MLflow run."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._mlflow = import_module("mlflow")
        self._mlflow.set_experiment(config.log.mlflow)
        path = folder / "mlflow.id"
        if path.exists():
            self._mlflow.start_run(run_id=path.read_text(encoding="utf-8"))
            return
        run = self._mlflow.start_run(run_name=folder.name)
        path.write_text(run.info.run_id, encoding="utf-8")
        self._mlflow.log_text(to_toml(config), "config.toml")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        named = {NOT_IN_MLFLOW.sub("_", name): value for name, value in values.items()}
        self._mlflow.log_metrics(named, step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class Trackio(Tracker):
    """A run of a Trackio project; `resume` continues the same run.

    Trackio knows runs by name, so a part of the name is drawn. What it prints is dropped, because
    it would break the display of the run.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        trackio = import_module("trackio")
        path = folder / "trackio.name"
        if not path.exists():
            path.write_text(f"{folder.resolve().name}-{secrets.token_hex(3)}", encoding="utf-8")
        with redirect_stdout(StringIO()):
            # In a context that ends here, so that Trackio does not finish the run again at exit.
            self._run = copy_context().run(
                trackio.init,
                project=config.log.trackio,
                name=path.read_text(encoding="utf-8"),
                resume="allow",
                config=config.model_dump(mode="json"),
                embed=False,
            )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        with redirect_stdout(StringIO()):
            self._run.finish()


class Guarded(Tracker):
    """A tracker whose failures never stop a run.

    The first failure is reported, all are counted, and after several in a row it is disabled.
    """

    def __init__(self, tracker: Tracker, name: str, notify: Callable[[str], None]) -> None:
        self.num_lost = 0
        """Steps that the tracker did not log."""
        self._tracker = tracker
        self._name = name
        self._notify = notify
        self._failures_in_a_row = 0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self._failures_in_a_row >= MAX_FAILURES:
            self.num_lost += 1
            return
        try:
            self._tracker.log(step, values)
        except Exception as error:  # noqa: BLE001 - an external service may fail in any way
            self._count(step, error)
        else:
            self._failures_in_a_row = 0

    def close(self) -> None:
        try:
            self._tracker.close()
        except Exception as error:  # noqa: BLE001 - as above
            cause = _without_password(error)
            self._notify(f"{self._name} did not close ({cause}); its last steps may be lost")
        if self.num_lost:
            self._notify(f"{self._name} lacks {self.num_lost} steps; {METRICS_FILE} has them")

    def _count(self, step: int, error: Exception) -> None:
        self._failures_in_a_row += 1
        self.num_lost += 1
        if self.num_lost == 1:
            self._notify(
                f"{self._name} failed to log step {step} ({_without_password(error)}). The run "
                f"continues, and {METRICS_FILE} has every step; after {MAX_FAILURES} failures in a "
                f"row {self._name} is disabled."
            )


def make_trackers(config: RunConfig, folder: Path, notify: Callable[[str], None]) -> list[Tracker]:
    """The metrics file, and a guarded tracker for each service or class that [log] names.

    A service whose package is missing is an error. A tracker that fails to start is reported and
    left out.
    """
    services = [name for name in SERVICES if getattr(config.log, name)]
    if problems := [problem for name in services if (problem := _problem_with(name))]:
        raise ConfigError("log", problems)
    started = [_start(name, config, folder, notify) for name in (*services, *config.log.trackers)]
    return [JsonLines(folder / METRICS_FILE), *(tracker for tracker in started if tracker)]


def _start(
    name: str, config: RunConfig, folder: Path, notify: Callable[[str], None]
) -> Guarded | None:
    tracker = TRACKERS.load(name)
    try:
        return Guarded(tracker(config, folder), name, notify)
    except Exception as error:  # noqa: BLE001 - an external service, down or not logged in to
        notify(f"{name} failed to start ({_without_password(error)}); the run continues without it")
        return None


def _problem_with(name: str) -> str | None:
    try:
        import_module(name)
    except ImportError as error:
        return (
            f"log.{name} is set, but {name} cannot be imported ({error}); "
            f"pip install 'pettingllms[{name}]'"
        )
    return None


def _without_password(error: Exception) -> str:
    """The error's text, without the user name and password that a URL in it may contain."""
    return re.sub(r"//[^/@\s]+@", "//***@", describe(error))


def metric_rows(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The metrics of each step, from the whole lines of a metrics file."""
    rows = (json.loads(line) for line in lines)
    return [*{row["step"]: row for row in rows}.values()]


def _drop_cut_line(path: Path) -> dict[str, Any]:
    """Remove a line that was cut short; the row of the last line."""
    if not path.exists():
        return {}
    with path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
    *_, last = [b"{}", *content[: content.rfind(b"\n") + 1].splitlines()]
    row: dict[str, Any] = json.loads(last)
    return row
