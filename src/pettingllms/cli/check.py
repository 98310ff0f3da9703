"""`check` and `show-config`: what this machine has, and whether a config can run on it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.config import RunConfig, to_toml
from pettingllms.preflight.absent import find_absent_data
from pettingllms.preflight.machine import Finding, examine, find_device, find_gpus
from pettingllms.preflight.run import inspect
from pettingllms.runs.trust import load_inspected_config

MARKS = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "problem": "[red]✗[/]"}


def check_machine(as_json: bool) -> None:
    """Print what this machine has and lacks, with advice; exit code 1 if there is a problem."""
    findings = examine()
    if as_json:
        _print_json(findings)
    else:
        table = Table("", "found", "advice", title="This machine")
        for finding in findings:
            table.add_row(MARKS[finding.level], escape(finding.what), escape(finding.advice))
        console.print(table)
        console.print(_count(_num_problems(findings)))
    if _num_problems(findings):
        raise typer.Exit(1)


def check_config(path: Path, overrides: Sequence[str], out: Path, as_json: bool) -> None:
    """Print what a config needs and all problems; exit code 1 if there is one."""
    config = load_inspected_config(path, overrides)
    findings = inspect(config, out)
    if as_json:
        _print_json(findings)
    else:
        _print_check(config, path, findings)
    if _num_problems(findings):
        raise typer.Exit(1)


def _print_json(findings: Sequence[Finding]) -> None:
    whole = {
        "num_problems": _num_problems(findings),
        "findings": [asdict(finding) for finding in findings],
    }
    console.out(json.dumps(whole), highlight=False)


def _print_check(config: RunConfig, path: Path, findings: Sequence[Finding]) -> None:
    table = Table("role", "policy", "kind", "trained")
    trained = config.trained_policies()
    for role, policy in config.roles.items():
        is_trained = "yes" if policy in trained else "no"
        table.add_row(role, policy, config.policies[policy].kind, is_trained)
    console.print(table)
    for finding in findings:
        advice = f"\n  → {escape(finding.advice)}" if finding.advice else ""
        console.print(f"{MARKS[finding.level]} {escape(finding.what)}{advice}", highlight=False)
    what = escape(f"{config.algo.type} on {config.env.id}, {config.rollout.type} rollouts")
    if num_problems := _num_problems(findings):
        console.print(
            f"[red]{_count(num_problems)}[/]: {escape(str(path))} is a valid config ({what}), but "
            "it cannot run on this machine."
        )
    else:
        console.print(f"[green]ok[/]: {escape(str(path))} can run: {what}.")


def _num_problems(findings: Sequence[Finding]) -> int:
    return sum(finding.level == "problem" for finding in findings)


def _count(num_problems: int) -> str:
    return f"{num_problems} problem{'s' if num_problems != 1 else ''}"


def print_config(path: Path, overrides: Sequence[str]) -> None:
    """Print the resolved config: with colors on a terminal, else as plain TOML."""
    config = load_inspected_config(path, overrides, needs_data=False)
    if (device := find_device(config.cluster, find_gpus())) is not None:
        config = config.for_device(device)
    notes = [f"# {one.what}; {one.advice}\n" for one in find_absent_data(config)]
    text = "".join([*notes, to_toml(config, used_only=True)])
    if console.is_terminal:
        console.print(Syntax(text, "toml", background_color="default"))
    else:
        console.out(text, end="", highlight=False)
