"""`train`, `sft`, `dpo`, `resume` and `export`, with a display of their progress."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from pettingllms.api.calls import dpo, free_folder, require_learners, sft, train
from pettingllms.api.run_handle import Run, check_resumable
from pettingllms.cli.console import console
from pettingllms.cli.eval import weights_of
from pettingllms.cli.live import make_display
from pettingllms.config import RunConfig
from pettingllms.errors import CheckpointError
from pettingllms.runs.trust import load_user_config

RUNS = Path("runs")


def train_config(path: Path, overrides: Sequence[str], out: Path | None) -> None:
    """Start a run."""
    run = _run(train, load_user_config(path, overrides), out or free_folder(RUNS, path.stem))
    _print_folder(run)


def sft_config(path: Path, overrides: Sequence[str], out: Path | None) -> None:
    """Train policies on episodes."""
    folder = out or free_folder(RUNS, f"{path.stem}-sft")
    _print_warm_start(_run(sft, load_user_config(path, overrides), folder))


def dpo_config(path: Path, words: Sequence[str], out: Path | None) -> None:
    """Train policies on preference pairs. A word with a `=` is an override, any other word an
    episode file."""
    config = load_user_config(path, [word for word in words if "=" in word])
    files = [word for word in words if "=" not in word]
    folder = out or free_folder(RUNS, f"{path.stem}-dpo")
    _print_warm_start(_run(dpo, config, folder, episodes=files))


def resume_run(path: Path, step: int | None = None) -> None:
    """Resume a run from its latest complete checkpoint, or from that of an earlier step."""
    check_resumable(path)
    run = Run(path)
    with make_display(run.config, path.name, console) as display:
        run.resume(step, callbacks=[display])
    _print_folder(run)


def export_policy(path: Path, policy: str | None, checkpoint: Path | None, out: Path) -> None:
    """Write a trained policy as a folder that Transformers, PEFT and vLLM load."""
    from pettingllms.training.export import export

    config, found = weights_of(path, [], checkpoint, needed=True)
    saved = {name: files for name, files in found.items() if name in config.policies}
    if not saved:
        raise CheckpointError(
            f"{path} has no checkpoint yet; train.save_every sets how often one is saved"
        )
    policy = export(config, saved, policy, out)
    console.print(f"Exported [bold]{escape(policy)}[/] to [bold]{escape(str(out))}[/]")


def _run(call: Callable[..., Run], config: RunConfig, folder: Path, **options: Any) -> Run:
    require_learners(config)
    with make_display(config, folder.name, console) as display:
        return call(config, out=folder, callbacks=[display], **options)


def _print_folder(run: Run) -> None:
    console.print(f"Run folder: [bold]{escape(str(run.path))}[/]", soft_wrap=True)


def _print_warm_start(run: Run) -> None:
    _print_folder(run)
    start = f"train.init_from={run.path}"
    console.print(f"Train from it with [bold]{escape(start)}[/]", soft_wrap=True)
