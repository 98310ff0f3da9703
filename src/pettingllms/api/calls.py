"""`train`, `sft`, `dpo`, `rollout` and `evaluate`: each command of the CLI as one call."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms.api.blocking import check_not_loading, run_blocking
from pettingllms.api.configs import ConfigLike, make_config
from pettingllms.api.progress import progress_callbacks
from pettingllms.api.run_handle import Run, evaluate_weights
from pettingllms.config import RunConfig
from pettingllms.errors import ConfigError, PausedError, PettingError
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.checkpoint import open_checkpoint
from pettingllms.runs.folder import CONFIG_FILE, VERSIONS_FILE, RunFolder, slug
from pettingllms.runs.remote_folder import require_unused
from pettingllms.training.collect import EPISODES_FILE

if TYPE_CHECKING:
    from pettingllms.envs import Split
    from pettingllms.training.evaluate import Evaluation

RUNS = Path("runs")
Trainer = Callable[[RunConfig, RunFolder, Callback], None]
OutLike = str | Path | None


def train(
    config: ConfigLike = None,
    *,
    out: OutLike = None,
    callbacks: Sequence[Callback] | None = None,
    **sections: Any,
) -> Run:
    """Train the policies of a configuration with reinforcement learning, and return the run.

    `config`, `env`, `model`, `num_steps` and further sections are those of `make_config`. `out` is
    the run folder; by default a new one under `runs/`. `callbacks` are notified of progress; by
    default one line per step is printed, and `callbacks=[]` prints nothing.
    """
    from pettingllms.training.train import train as run_training

    folder, made = _folder(out, config), make_config(config, **sections).for_training()
    require_unused(made.train.checkpoint_folder)
    return _start(run_training, made, folder, callbacks)


def sft(
    config: ConfigLike = None,
    *,
    out: OutLike = None,
    callbacks: Sequence[Callback] | None = None,
    **sections: Any,
) -> Run:
    """Train policies on episodes of a scripted player or of files (`sft={...}`), as a warm start:
    `train={"init_from": RUN.path}` starts from the result. Arguments as in `train`."""
    from pettingllms.training.sft import sft as run_sft

    folder = _folder(out, config, "-sft")
    return _start(run_sft, make_config(config, **sections), folder, callbacks, supervised=True)


def dpo(
    config: ConfigLike = None,
    *,
    episodes: Sequence[str | Path] = (),
    out: OutLike = None,
    callbacks: Sequence[Callback] | None = None,
    **sections: Any,
) -> Run:
    """Train policies on preference pairs from files of episodes: for each role, replies to the same
    prompt of which one earned more reward. Arguments as in `train`."""
    from pettingllms.config.sft import DpoConfig
    from pettingllms.training.dpo import dpo as run_dpo

    folder, made = _folder(out, config, "-dpo"), make_config(config, **sections)
    if episodes:
        section = made.dpo or DpoConfig()
        named = section.model_copy(update={"episodes": [str(file) for file in episodes]})
        made = made.model_copy(update={"dpo": named})
    return _start(run_dpo, made, folder, callbacks, supervised=True)


def rollout(
    config: ConfigLike = None,
    *,
    player: str = "random",
    split: "Split" = "train",
    out: OutLike = None,
    callbacks: Sequence[Callback] | None = None,
    **sections: Any,
) -> Run:
    """Play tasks with scripted players, assign credit, and write the episodes; needs no engine.

    `player` is the scripted player that answers for policies with weights. Other arguments are as
    in `train`, and `Run.episodes` of the result reads the episodes.
    """
    from pettingllms.training.collect import collect

    folder, made = _folder(out, config, "-rollout"), make_config(config, **sections)
    if (folder / EPISODES_FILE).exists():
        raise ConfigError(str(folder), ["already holds episodes; give another folder as out"])
    listener = progress_callbacks(callbacks)
    num_done, total = 0, made.rollout.num_tasks * made.rollout.num_episodes

    def count(_: Any) -> None:
        nonlocal num_done
        num_done += 1
        listener.on_progress(num_done, total)

    run_blocking(collect, made, folder, player, split, count)
    return Run(folder)


def evaluate(
    config: ConfigLike | Run = None,
    *,
    checkpoint: OutLike = None,
    out: OutLike = None,
    callbacks: Sequence[Callback] | None = None,
    **sections: Any,
) -> "Evaluation":
    """Play test tasks without learning, and return scores per role: avg@k, pass@k and reward.

    `config` may also be a `Run` or its folder: then its latest checkpoint plays, or `checkpoint`.
    With `out`, the episodes are written there. Other arguments are as in `train`.
    """
    if isinstance(config, Run):
        config = config.path
    if isinstance(config, str | Path) and Path(config).is_dir():
        return Run(config).evaluate(checkpoint=checkpoint, out=out, callbacks=callbacks, **sections)
    made = make_config(config, **sections)
    weights = open_checkpoint(Path(checkpoint))[1] if checkpoint else {}
    return evaluate_weights(made, weights, out, callbacks)


def _start(
    trainer: Trainer,
    config: RunConfig,
    folder: Path,
    callbacks: Sequence[Callback] | None,
    supervised: bool = False,
) -> Run:
    require_learners(config)
    run, listener = RunFolder(folder), progress_callbacks(callbacks)
    with _new_run(run, config, supervised):
        listener.on_message(f"run folder: {folder}")
        run_blocking(trainer, config, run, listener)
    return Run(folder)


def require_learners(config: RunConfig) -> None:
    """Raise ConfigError if no policy of a configuration is trained."""
    if not config.trained_policies():
        raise ConfigError(
            "policies",
            ["none of them is trained; set kind to full or lora, or use `pettingllms eval`"],
        )


@contextmanager
def _new_run(folder: RunFolder, config: RunConfig, supervised: bool) -> Iterator[None]:
    """Create a run folder. If the run fails before it did anything, the folder is removed again, so
    that the same call can be repeated."""
    before = set(folder.path.iterdir()) if folder.path.is_dir() else None
    folder.create(config, supervised)
    try:
        yield
    except PausedError:
        raise
    except (PettingError, OSError):
        made = [file for file in folder.path.iterdir() if file not in (before or ())]
        if all(file.is_file() and _is_trivial(file) for file in made):
            for file in made:
                file.unlink()
            if before is None:
                folder.path.rmdir()
        raise


def _is_trivial(file: Path) -> bool:
    """Whether a file of a run folder exists before the run does anything."""
    return file.name in (CONFIG_FILE, VERSIONS_FILE) or file.stat().st_size == 0


def _folder(out: OutLike, config: ConfigLike, suffix: str = "") -> Path:
    check_not_loading()
    if out is not None:
        return Path(out)
    name = Path(config).stem if isinstance(config, str | Path) else "run"
    return free_folder(RUNS, f"{slug(name)}{suffix}")


def free_folder(root: Path, name: str) -> Path:
    """The first of NAME-1, NAME-2, ... that does not exist yet."""
    number = 1
    while (root / f"{name}-{number}").exists():
        number += 1
    return root / f"{name}-{number}"
