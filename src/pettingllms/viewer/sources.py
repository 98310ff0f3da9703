"""Files of a run, a rollout or an evaluation, read as plain data.

A config may name user code, and viewing a run must not execute it. So the environment is known by
its id only, and groups are recomputed only for algorithms that ship with the package.
"""

import json
import math
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pettingllms.config import RewardConfig, RunConfig
from pettingllms.config.renames import migrate, migrate_metrics
from pettingllms.config.section import EnvConfig
from pettingllms.config.user_code import named_code
from pettingllms.errors import ConfigError, RecordError, describe
from pettingllms.registry import ALGORITHMS
from pettingllms.runs.folder import CONFIG_FILE, VERSIONS_FILE
from pettingllms.runs.trackers import METRICS_FILE
from pettingllms.types.episode_files import EPISODES, LINES, SINGLE, step_of
from pettingllms.types.shards import SUFFIX


@dataclass(frozen=True, slots=True)
class ViewedRun:
    """A run folder or one episode file."""

    path: Path
    settings: dict[str, Any] = field(default_factory=dict)
    """The config as written; empty if the file is missing."""
    config: RunConfig | None = None
    """The parsed config, if this version supports it; its environment has an id but no options."""
    problem: str = ""
    """Why `config` is None."""

    @property
    def name(self) -> str:
        """Display name."""
        return self.path.resolve().name

    @property
    def folder(self) -> Path:
        """The folder with its files."""
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def reward(self) -> RewardConfig:
        """Weights of the reward levels."""
        return RewardConfig() if self.config is None else self.config.reward

    def episode_files(self) -> dict[Path, int]:
        """All episode files with their training step, or 0 without one."""
        if self.path.is_file():
            return {self.path: step_of(self.path) or 0}
        folder = self.path / EPISODES
        found = [self.path / SINGLE, *folder.glob(f"*{LINES}"), *folder.glob(f"*{SUFFIX}")]
        return {path: step_of(path) or 0 for path in found if path.is_file()}

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of every step; a repeated step keeps its last row."""
        path = self.folder / METRICS_FILE
        if self.path.is_file() or not path.is_file():
            return []
        rows: dict[int, dict[str, Any]] = {}
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            if line.endswith(b"\n"):  # an incomplete line is still being written
                try:
                    row = _parse_metrics(line)
                except (LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
                    raise RecordError(
                        f"{path}, line {number}: not the metrics of a step ({describe(error)}); "
                        "delete the line to view the others"
                    ) from error
                rows[row["step"]] = migrate_metrics(row)
        return [rows[step] for step in sorted(rows)]

    def versions(self) -> dict[str, str]:
        """Package versions that the run was made with."""
        path = self.folder / VERSIONS_FILE
        if not path.is_file():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return {str(name): str(number) for name, number in found.items()}
        except (AttributeError, RecursionError, ValueError) as error:
            raise RecordError(
                f"{path}: not the versions of a run ({describe(error)}); delete the file, "
                "it is only informative"
            ) from error


def open_run(path: Path) -> ViewedRun:
    """Open a run, a rollout or an evaluation for viewing."""
    if not path.exists():
        raise ConfigError(str(path), ["no such file or folder; expected a run folder"])
    run = ViewedRun(path)
    config = run.folder / CONFIG_FILE
    if path.is_dir() and not config.is_file() and not run.episode_files():
        raise ConfigError(
            str(path), [f"is not a run folder: it has neither {CONFIG_FILE} nor {EPISODES}"]
        )
    if not config.is_file():
        return ViewedRun(path, problem=f"no {CONFIG_FILE} next to the episodes")
    try:
        settings = migrate(tomllib.loads(config.read_text(encoding="utf-8")))
    except (RecursionError, ValueError) as error:
        return ViewedRun(path, problem=f"{config} is not TOML: {error}")
    return replace(_with_config(path, settings), settings=_plain(settings))


def _with_config(path: Path, settings: dict[str, Any]) -> ViewedRun:
    try:
        algo = settings["algo"]["type"]
        if algo not in ALGORITHMS.names():
            return ViewedRun(path, settings, problem=f"algorithm '{algo}' is not built in")
        others = {key: value for key, value in settings.items() if key not in ("env", "log")}
        if foreign := named_code(others):
            return ViewedRun(path, settings, problem=f"'{foreign[0]}' is not built in")
        env = EnvConfig(id=str(settings["env"]["id"]))
        config = RunConfig.model_validate({**settings, "env": env})
    except (KeyError, TypeError, ValidationError) as error:
        return ViewedRun(path, settings, problem=f"unsupported config: {error}")
    return ViewedRun(path, settings, config)


def _parse_metrics(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line.decode("utf-8"))
    if not isinstance(row["step"], int):
        raise TypeError(f"step is {row['step']!r:.40}")
    for name, value in row.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    return row


def _plain(value: Any) -> Any:
    """Settings as JSON values; infinity and dates become strings."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    fits = isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
    return value if fits else str(value)
