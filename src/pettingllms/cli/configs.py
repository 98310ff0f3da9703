"""`check` and `show-config`: a configuration before it costs anything."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.cli.doctor import MARKS
from pettingllms.config import RunConfig, to_toml
from pettingllms.preflight.machine import Finding
from pettingllms.preflight.run import inspect
from pettingllms.runs.trust import load_inspected_config


def check_config(path: Path, overrides: Sequence[str], out: Path, as_json: bool) -> None:
    """Read a configuration, look at what it needs here, and say all that would stop it."""
    config = load_inspected_config(path, overrides)
    findings = inspect(config, out)
    problems = [finding for finding in findings if finding.level == "problem"]
    if as_json:
        whole = {"num_problems": len(problems), "findings": [asdict(each) for each in findings]}
        console.out(json.dumps(whole), highlight=False)
    else:
        _print_check(config, path, findings, len(problems))
    if problems:
        raise typer.Exit(1)


def _print_check(
    config: RunConfig, path: Path, findings: Sequence[Finding], num_problems: int
) -> None:
    table = Table("role", "policy", "kind", "learns")
    trained = config.trained_policies()
    for role, policy in config.roles.items():
        learns = "yes" if policy in trained else "no"
        table.add_row(role, policy, config.policies[policy].kind, learns)
    console.print(table)
    for finding in findings:
        advice = f"\n  → {escape(finding.advice)}" if finding.advice else ""
        console.print(f"{MARKS[finding.level]} {escape(finding.what)}{advice}", highlight=False)
    what = f"{config.algo.type} on {config.env.id}, {config.rollout.type} rollouts"
    if num_problems:
        console.print(
            f"[red]{num_problems} problem{'s' if num_problems > 1 else ''}[/]: "
            f"{escape(str(path))} is a sound configuration ({escape(what)}), but a run of it would "
            "stop here."
        )
    else:
        console.print(f"[green]ok[/]: {escape(str(path))} can run: {escape(what)}.")


def print_config(path: Path, overrides: Sequence[str]) -> None:
    """Print the resolved configuration; plain TOML where nobody looks."""
    text = to_toml(load_inspected_config(path, overrides), used_only=True)
    if console.is_terminal:
        console.print(Syntax(text, "toml", background_color="default"))
    else:
        console.out(text, end="", highlight=False)
