"""Where metrics go: always a file in the run's folder, and the services that a run asks for."""

import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol

from pettingllms.config import RunConfig, to_toml
from pettingllms.errors import ConfigError, describe

METRICS_FILE = "metrics.jsonl"
MAX_FAILURES = 3
"""Failures in a row after which a tracker gets no more values."""
NOT_IN_MLFLOW = re.compile(r"[^\w./ -]")
"""Signs, such as the ~ of a player, for which MLflow would refuse all numbers of a step."""


class Tracker(Protocol):
    """Somebody who is told the numbers of every step."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a step."""

    def close(self) -> None:
        """Take no more."""


class JsonLines:
    """One JSON object a line, on the disk before `log` returns.

    A number that is not finite is written as null. A line that a crash cut short is dropped when
    the run goes on; of a step that was then done again, the later line counts.
    """

    def __init__(self, path: Path) -> None:
        _drop_cut_line(path)
        self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        finite = {key: value if math.isfinite(value) else None for key, value in values.items()}
        self._file.write(json.dumps({"step": step, **finite}, allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Event files in the run's folder, by TensorBoard's own writer: torch is not needed."""

    def __init__(self, config: RunConfig, folder: Path) -> None:  # noqa: ARG002 - as all plugins
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


class Wandb:
    """A run in a Weights & Biases project; a run that goes on goes on there too.

    What is printed is not uploaded, as nobody knows what a library prints.
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


class Mlflow:
    """A run of an MLflow experiment; a run that goes on goes on there too."""

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


PLUGINS: dict[str, type[TensorBoard | Wandb | Mlflow]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": Mlflow,
}
"""By the key of [log] that asks for each, which is also its module and its extra."""


class Guarded:
    """A tracker whose failures never stop a run: said once, counted, and after a few no more."""

    def __init__(self, tracker: Tracker, name: str, notify: Callable[[str], None]) -> None:
        self.num_lost = 0
        """Steps that the tracker did not take."""
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
        except Exception as error:  # noqa: BLE001 - somebody else's service, down or not
            self._count(step, error)
        else:
            self._failures_in_a_row = 0

    def close(self) -> None:
        try:
            self._tracker.close()
        except Exception as error:  # noqa: BLE001 - as above
            self._notify(
                f"{self._name} did not close ({_words_of(error)}); its last steps may be lost"
            )
        if self.num_lost:
            self._notify(f"{self._name} lacks {self.num_lost} steps; {METRICS_FILE} has them")

    def _count(self, step: int, error: Exception) -> None:
        self._failures_in_a_row += 1
        self.num_lost += 1
        if self.num_lost == 1:
            self._notify(
                f"{self._name} did not take step {step} ({_words_of(error)}). The run goes on, and "
                f"{METRICS_FILE} has every step; after {MAX_FAILURES} failures in a row "
                f"{self._name} gets no more."
            )


def make_trackers(config: RunConfig, folder: Path, notify: Callable[[str], None]) -> list[Tracker]:
    """The file of metrics, and a guarded tracker for each service that the run asks for.

    One that is not installed is refused; one that cannot start is said, and done without.
    """
    wanted = [name for name in PLUGINS if getattr(config.log, name)]
    if problems := [problem for name in wanted if (problem := _problem_with(name))]:
        raise ConfigError("log", problems)
    plugins = [_started(name, config, folder, notify) for name in wanted]
    return [JsonLines(folder / METRICS_FILE), *(plugin for plugin in plugins if plugin)]


def _started(
    name: str, config: RunConfig, folder: Path, notify: Callable[[str], None]
) -> Guarded | None:
    try:
        return Guarded(PLUGINS[name](config, folder), name, notify)
    except Exception as error:  # noqa: BLE001 - somebody else's service, down or not logged in to
        notify(f"{name} could not start ({_words_of(error)}); the run goes on without it")
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


def _words_of(error: Exception) -> str:
    """What went wrong, without the name and password that an address in it may carry."""
    return re.sub(r"//[^/@\s]+@", "//***@", describe(error))


def _drop_cut_line(path: Path) -> None:
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
