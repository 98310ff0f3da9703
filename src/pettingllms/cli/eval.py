"""`eval`: test tasks of a run, or of a config, without learning."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from pettingllms.cli.console import console, warn
from pettingllms.config import RunConfig
from pettingllms.errors import ConfigError
from pettingllms.policies.files import Saved
from pettingllms.runs.checkpoint import open_checkpoint
from pettingllms.runs.folder import CONFIG_FILE, RunFolder
from pettingllms.runs.scores import Estimate, RoleScore
from pettingllms.runs.trust import load_run_config, load_user_config

SCORES_FILE = "scores.json"


def evaluate_policies(
    path: Path,
    overrides: Sequence[str],
    checkpoint: Path | None,
    out: Path | None,
    as_json: bool,
    exploitability: bool = False,
) -> None:
    """Play the test tasks of a run or a config, and print scores per role."""
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


def weights_of(
    path: Path, overrides: Sequence[str], checkpoint: Path | None, needed: bool = False
) -> tuple[RunConfig, Saved]:
    """The config and the trained weights of a run folder or a config file. With `needed`, a run
    without a checkpoint is an error."""
    if path.is_file():
        config = load_user_config(path, overrides)
        return config, open_checkpoint(checkpoint)[1] if checkpoint else {}
    if not (path / CONFIG_FILE).is_file():
        raise ConfigError(str(path), ["is neither a config nor a run folder; give one of them"])
    config = load_run_config(path / CONFIG_FILE, overrides)
    run = RunFolder(path)
    load = run.newest if needed else run.open
    newest = open_checkpoint(checkpoint) if checkpoint else load(warn)
    if newest is None:
        warn(f"{path} has no checkpoint yet; using the models before training")
    return config, newest[1] if newest else {}


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
    table = Table("policy", *names, title="Exploitability")
    for policy, found in exploitability.items():
        table.add_row(policy, *(f"{found[name]:.4f}" for name in names))
    console.print(table)
    console.print("0 is equilibrium play; legal_share is the probability of legal replies.")


def _text(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"
