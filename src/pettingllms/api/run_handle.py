"""`Run`: a run folder as an object, with its configuration, results and what to do next."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms.api.blocking import run_blocking
from pettingllms.api.configs import make_config
from pettingllms.api.progress import progress_callbacks
from pettingllms.api.user_classes import register_env
from pettingllms.config import RunConfig, read_toml
from pettingllms.config.renames import migrate_metrics
from pettingllms.errors import CheckpointError, ConfigError
from pettingllms.policies.files import Saved
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.checkpoint import checkpoints, open_checkpoint
from pettingllms.runs.folder import CHECKPOINTS, CONFIG_FILE, RunFolder
from pettingllms.runs.remote_folder import fetch_missing
from pettingllms.runs.trackers import METRICS_FILE, metric_rows
from pettingllms.runs.trust import require_trusted
from pettingllms.training.collect import EPISODES_FILE
from pettingllms.types import Episode, episode_files, read_episodes
from pettingllms.types.episode_files import step_of

if TYPE_CHECKING:
    from pettingllms.training.evaluate import Evaluation

PathLike = str | Path


class Run:
    """A run folder: what `train`, `sft`, `dpo` and `rollout` return, or one from earlier."""

    def __init__(self, path: PathLike) -> None:
        """Open the folder of a run; ConfigError if it holds none."""
        self.path = Path(path)
        self._folder = RunFolder(self.path)
        if not (self.path / CONFIG_FILE).is_file():
            raise ConfigError(str(path), ["holds no run; `pettingllms train CONFIG` starts one"])

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def config(self) -> RunConfig:
        """The configuration of the run with all defaults filled in."""
        return self._folder.config()

    def metrics(self) -> list[dict[str, Any]]:
        """One row per step: `step`, and every metric by its name, such as `roles/coder/reward`."""
        path = self.path / METRICS_FILE
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = (line for line in lines if line.endswith("\n"))
        return [migrate_metrics(row) for row in metric_rows(whole)]

    def episodes(self, step: int | None = None) -> Iterator[Episode]:
        """The recorded episodes in the order of steps, or those of one step."""
        files = episode_files(self.path)
        if step is not None:
            files = [file for file in files if step_of(file) == step]
            if not files:
                raise ConfigError(str(self.path), [f"has no episodes of step {step}"])
        for file in files:
            yield from read_episodes(file)

    def checkpoints(self) -> dict[int, Path]:
        """The folders of the checkpoints by step, in the order of steps."""
        found = checkpoints(self.path / CHECKPOINTS)
        return {int(folder.name.removeprefix("step-")): folder for folder in sorted(found)}

    def resume(
        self,
        step: int | None = None,
        *,
        env: Any = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> "Run":
        """Continue training from the latest complete checkpoint, or from that of an earlier step,
        whose later steps are removed.

        `env` is the environment that was passed to `train`. It is needed if this process cannot
        load it by name: a class of a notebook or a function, or an object such as `single_turn`.
        """
        from pettingllms.training.train import train

        self._use(env)
        check_resumable(self.path)
        config = self.config
        listener = progress_callbacks(callbacks)
        with self._folder.taken():
            url = config.train.checkpoint_folder
            fetch_missing(url, self.path / CHECKPOINTS, listener.on_message)
            if step is not None:
                self._folder.go_back(step)
        listener.on_message(f"run folder: {self.path}")
        run_blocking(train, config, self._folder, listener)
        return self

    def evaluate(
        self,
        *,
        step: int | None = None,
        checkpoint: PathLike | None = None,
        env: Any = None,
        out: PathLike | None = None,
        callbacks: Sequence[Callback] | None = None,
        **sections: Any,
    ) -> "Evaluation":
        """Scores per role on test tasks, with the latest checkpoint or that of a step. Keywords
        change sections of the configuration, such as `eval={"num_tasks": 200}`."""
        self._use(env)
        file = self.path / CONFIG_FILE
        require_trusted(file, sections.get("overrides", ()))
        config = make_config(file, **sections)
        return evaluate_weights(config, self._weights(step, checkpoint), out, callbacks)

    def export(
        self,
        out: PathLike,
        policy: str | None = None,
        *,
        step: int | None = None,
        checkpoint: PathLike | None = None,
    ) -> Path:
        """Write a trained policy as a folder that Transformers, PEFT and vLLM load. `policy` may be
        left out if one policy was trained."""
        from pettingllms.training.export import export

        config, saved = self.config, self._weights(step, checkpoint, needed=True)
        trained = {name: files for name, files in saved.items() if name in config.policies}
        export(config, trained, policy, Path(out))
        return Path(out)

    def _use(self, env: Any) -> None:
        if env is not None:
            name = read_toml(self.path / CONFIG_FILE)["env"]["id"]
            register_env(name, env)

    def _weights(
        self, step: int | None, checkpoint: PathLike | None, needed: bool = False
    ) -> Saved:
        if step is not None:
            found = self.checkpoints()
            if step not in found:
                known = ", ".join(map(str, found)) or "none"
                raise CheckpointError(f"{self.path} has no checkpoint of step {step}; has: {known}")
            checkpoint = found[step]
        if checkpoint is not None:
            return open_checkpoint(Path(checkpoint))[1]
        load = self._folder.newest if needed else self._folder.open
        newest = load(warnings.warn)
        if newest is None:
            warnings.warn(f"{self.path} has no checkpoint; using untrained models", stacklevel=3)
        return newest[1] if newest else {}


def check_resumable(path: Path) -> None:
    """Raise ConfigError if a folder was not written by `train`."""
    if RunFolder(path).is_supervised:
        begin = f"`pettingllms train CONFIG train.init_from={path}` starts from its weights"
        raise ConfigError(
            str(path), [f"was written by `pettingllms sft` or `dpo`, not `train`; {begin}"]
        )
    if (path / EPISODES_FILE).exists() and not (path / METRICS_FILE).exists():
        begin = "`pettingllms train CONFIG` starts a run"
        raise ConfigError(str(path), [f"was written by `pettingllms rollout`; {begin}"])


def evaluate_weights(
    config: RunConfig,
    weights: Saved,
    out: PathLike | None,
    callbacks: Sequence[Callback] | None,
) -> "Evaluation":
    """Play the test tasks of a configuration with given weights; without any, untrained models."""
    from pettingllms.training.evaluate import evaluate

    listener = progress_callbacks(callbacks)
    total = config.eval.num_tasks * config.eval.num_samples
    return run_blocking(
        evaluate,
        config,
        weights,
        notify=listener.on_message,
        progress=lambda done: listener.on_progress(done, total),
        out=Path(out) / EPISODES_FILE if out else None,
    )
