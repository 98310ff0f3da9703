"""`doctor`: what this machine has and lacks for a run."""

import json
from dataclasses import asdict

import typer
from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.preflight.machine import examine

MARKS = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "problem": "[red]✗[/]"}


def print_findings(as_json: bool) -> None:
    """Print every finding with its advice; a problem makes the exit code 1."""
    findings = examine()
    num_problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        whole = {"num_problems": num_problems, "findings": [asdict(each) for each in findings]}
        console.out(json.dumps(whole), highlight=False)
    else:
        table = Table("", "found", "advice", title="doctor")
        for finding in findings:
            table.add_row(MARKS[finding.level], escape(finding.what), escape(finding.advice))
        console.print(table)
        console.print(f"{num_problems} problem{'s' if num_problems != 1 else ''}")
    if num_problems:
        raise typer.Exit(1)
