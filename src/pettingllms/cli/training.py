"""`train`, `resume`, `eval` and `export`: a run from its first step to a model that others load."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from pettingllms.cli.console import console, warn
from pettingllms.cli.live import make_display
from pettingllms.config import RunConfig
from pettingllms.config.sft import DpoConfig
from pettingllms.errors import CheckpointError, ConfigError, PausedError, PettingError
from pettingllms.policies.files import Saved
from pettingllms.runs.checkpoint import load_checkpoint
from pettingllms.runs.folder import CONFIG_FILE, VERSIONS_FILE, RunFolder
from pettingllms.runs.scores import Estimate, RoleScore
from pettingllms.runs.trackers import METRICS_FILE
from pettingllms.runs.trust import load_run_config, load_user_config
from pettingllms.training.collect import EPISODES_FILE
from pettingllms.training.export import export

SCORES_FILE = "scores.json"


def train_config(path: Path, overrides: Sequence[str], out: Path | None) -> None:
    """Begin a run."""
    config = load_user_config(path, overrides).for_training()
    _need_learners(config)
    folder = RunFolder(out or free_folder(Path("runs"), path.stem))
    with _begun(folder, config):
        _go_on(config, folder)


def sft_config(path: Path, overrides: Sequence[str], out: Path | None) -> None:
    """Train policies on what scripts, or they themselves, have said."""
    from pettingllms.training.sft import sft

    _teach(sft, "sft", path, load_user_config(path, overrides), out)


def dpo_config(path: Path, words: Sequence[str], out: Path | None) -> None:
    """Train policies on pairs of replies. What follows the configuration has a `=` if it is an
    override, and else is a file of episodes."""
    from pettingllms.training.dpo import dpo

    config = load_user_config(path, [word for word in words if "=" in word])
    files = [word for word in words if "=" not in word]
    if files:
        named = (config.dpo or DpoConfig()).model_copy(update={"episodes": files})
        config = config.model_copy(update={"dpo": named})
    _teach(dpo, "dpo", path, config, out)


def _teach(
    how: Callable[[RunConfig, RunFolder, Any], None],
    name: str,
    path: Path,
    config: RunConfig,
    out: Path | None,
) -> None:
    _need_learners(config)
    folder = RunFolder(out or free_folder(Path("runs"), f"{path.stem}-{name}"))
    with (
        _begun(folder, config, supervised=True),
        make_display(config, folder.path.name, console) as display,
    ):
        display.on_message(f"run folder: {folder.path}")
        how(config, folder, display)
    console.print(
        f"Everything is in [bold]{escape(str(folder.path))}[/]; begin a run with it by "
        f"[bold]train.init_from={escape(str(folder.path))}[/]"
    )


@contextmanager
def _begun(folder: RunFolder, config: RunConfig, supervised: bool = False) -> Iterator[None]:
    """A folder while its run goes on. One that is refused before it did anything takes its folder
    with it, so that the same command can be given again."""
    before = set(folder.path.iterdir()) if folder.path.is_dir() else None
    folder.create(config, supervised)
    try:
        yield
    except PausedError:
        raise
    except (PettingError, OSError):
        made = [file for file in folder.path.iterdir() if file not in (before or ())]
        if all(file.is_file() and _says_nothing(file) for file in made):
            for file in made:
                file.unlink()
            if before is None:
                folder.path.rmdir()
        raise


def _says_nothing(file: Path) -> bool:
    """Whether a file of a run is there before the run did anything."""
    return file.name in (CONFIG_FILE, VERSIONS_FILE) or file.stat().st_size == 0


def resume_run(path: Path, step: int | None = None) -> None:
    """Go on with a run where it was left, or from the checkpoint of an earlier step."""
    folder = RunFolder(path)
    if folder.is_supervised:
        begin = f"`pettingllms train CONFIG train.init_from={path}` begins with what it learnt"
        raise ConfigError(
            str(path), [f"was written by `pettingllms sft` or `dpo`, not `train`; {begin}"]
        )
    config = folder.config()
    if (path / EPISODES_FILE).exists() and not (path / METRICS_FILE).exists():
        begin = "`pettingllms train CONFIG` begins a run"
        raise ConfigError(str(path), [f"was written by `pettingllms rollout`; {begin}"])
    if step is not None:
        with folder.taken():
            folder.go_back(step)
    _go_on(config, folder)


def _go_on(config: RunConfig, folder: RunFolder) -> None:
    from pettingllms.training.train import train

    with make_display(config, folder.path.name, console) as display:
        display.on_message(f"run folder: {folder.path}")
        train(config, folder, display)
    console.print(f"Everything is in [bold]{escape(str(folder.path))}[/]")


def evaluate_policies(
    path: Path,
    overrides: Sequence[str],
    checkpoint: Path | None,
    out: Path | None,
    as_json: bool,
    exploitability: bool = False,
) -> None:
    """Play a run's, or a configuration's, test tasks and say how good each role is."""
    from pettingllms.training.evaluate import evaluate

    asked = [*overrides, *(["eval.exploitability=true"] if exploitability else [])]
    config, saved = weights_of(path, asked, checkpoint)
    total = config.eval.num_tasks * config.eval.num_samples
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=as_json) as progress:
        bar = progress.add_task("episodes", total=total)
        episodes = out / "episodes.jsonl" if out else None
        found = evaluate(
            config,
            saved,
            notify=progress.console.print,
            progress=lambda done: progress.update(bar, completed=done),
            out=episodes,
        )
    data: dict[str, Any] = {role: score.to_json() for role, score in found.scores.items()}
    if config.eval.exploitability:
        data = {"roles": data, "policies": found.exploitability}
    if out is not None:
        (out / SCORES_FILE).write_text(json.dumps(data, indent=1), encoding="utf-8")
    if as_json:
        console.out(json.dumps(data), highlight=False)
        return
    _print_scores(config, found.scores)
    if config.eval.exploitability:
        _print_exploitability(found.exploitability)


def export_policy(path: Path, policy: str | None, checkpoint: Path | None, out: Path) -> None:
    """Write a trained policy as a folder that Transformers, PEFT and vLLM load."""
    config, found = weights_of(path, [], checkpoint, needed=True)
    saved = {name: files for name, files in found.items() if name in config.policies}
    if not saved:
        raise CheckpointError(f"{path} has no checkpoint yet; it is saved every train.save_every")
    policy = export(config, saved, policy, out)
    console.print(f"[bold]{escape(policy)}[/] written to [bold]{escape(str(out))}[/]")


def weights_of(
    path: Path, overrides: Sequence[str], checkpoint: Path | None, needed: bool = False
) -> tuple[RunConfig, Saved]:
    """The configuration and the trained weights that a run, or a plain configuration, names; a run
    without a checkpoint is refused where weights are `needed`."""
    if path.is_file():
        config = load_user_config(path, overrides)
        return config, load_checkpoint(checkpoint)[1] if checkpoint else {}
    if not (path / CONFIG_FILE).is_file():
        raise ConfigError(
            str(path), ["is neither a configuration nor the folder of a run; give one of them"]
        )
    config = load_run_config(path / CONFIG_FILE, overrides)
    run = RunFolder(path)
    load = run.newest if needed else run.load
    newest = load_checkpoint(checkpoint) if checkpoint else load(warn)
    if newest is None:
        warn(f"{path} has no checkpoint yet: these are the models as they were before training")
    return config, newest[1] if newest else {}


def _need_learners(config: RunConfig) -> None:
    if not config.trained_policies():
        raise ConfigError(
            "policies",
            ["none of them learns; make one full or lora, or use `pettingllms eval`"],
        )


def free_folder(root: Path, name: str) -> Path:
    """A folder of that name that holds no run yet."""
    number = 1
    while (root / f"{name}-{number}").exists():
        number += 1
    return root / f"{name}-{number}"


def _print_scores(config: RunConfig, scores: dict[str, RoleScore]) -> None:
    first = next(iter(scores.values()))
    passes, num_tasks = list(first.pass_at), first.num_tasks
    columns = ["role", "policy", f"avg@{config.eval.num_samples}"]
    columns += [f"pass@{k}" for k in passes if k > 1] + ["reward", "failed"]
    table = Table(*columns, title=f"{config.env.id}, {num_tasks} test tasks")
    for role, score in scores.items():
        cells = [role, config.roles[role], _text(score.avg)]
        cells += [_text(score.pass_at[k]) for k in passes if k > 1]
        reward = "-" if score.reward is None else f"{score.reward:+.3f}"
        table.add_row(*cells, reward, str(score.num_failed))
    console.print(table)
    console.print("In brackets: 95% confidence intervals over tasks.")


def _print_exploitability(exploitability: dict[str, dict[str, float]]) -> None:
    names = list(dict.fromkeys(name for found in exploitability.values() for name in found))
    table = Table("policy", *names, title="Distance from perfect play")
    for policy, found in exploitability.items():
        table.add_row(policy, *(f"{found[name]:.4f}" for name in names))
    console.print(table)
    console.print("0 is perfect play; legal_share: how likely its replies are legal moves as such.")


def _text(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"
