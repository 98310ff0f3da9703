"""`check CONFIG --gpu`: the memory plan of a config on named hardware."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from pettingllms.cli.check import MARKS
from pettingllms.cli.check_layout import as_data, print_picture
from pettingllms.cli.console import console
from pettingllms.policies import (
    check_lora_dtype,
    check_placement,
    group_resources,
    plan_models,
)
from pettingllms.preflight.absent import find_absent
from pettingllms.preflight.advice import Change, advise, find_fix
from pettingllms.preflight.estimates import ProcessEstimate, amount, largest
from pettingllms.preflight.hardware import Hardware
from pettingllms.preflight.machine import Finding
from pettingllms.preflight.sizing import MemoryPlan, plan_memory
from pettingllms.runs.trust import load_inspected_config

NUM_SHOWN = 4
"""Parts of a process in the table."""


def check_plan(path: Path, overrides: Sequence[str], hardware: Hardware, as_json: bool) -> None:
    """Print the memory that each process needs; exit code 1 if the run does not fit."""
    config = load_inspected_config(path, overrides, needs_data=False)
    groups = plan_models(config)
    check_placement(config, groups)
    check_lora_dtype(config, groups)
    plan = plan_memory(config, hardware)
    changes = [] if plan.fits else advise(plan)
    fix = None if plan.fits else find_fix(plan)
    if as_json:
        console.out(json.dumps(_as_data(plan, changes, fix)), highlight=False)
    else:
        _print_plan(path, plan, changes, fix)
    if not plan.fits:
        raise typer.Exit(1)


def _print_plan(
    path: Path, plan: MemoryPlan, changes: Sequence[Change], fix: Sequence[Change] | None
) -> None:
    table = Table(
        *("", "process", "number", "per GPU", "can use", "most of it", "host"),
        title=f"Memory on {plan.hardware.describe()} (estimate)",
    )
    for process in plan.processes:
        table.add_row(*_row(plan, process))
    console.print(table)
    if plan.layout is not None:
        groups = plan_models(plan.config)
        widths = {g.name: group_resources(plan.config, g).tensor_parallel for g in groups}
        print_picture(plan.layout, widths)
    for finding in _findings(plan):
        advice = f"\n  → {escape(finding.advice)}" if finding.advice else ""
        line = f"{MARKS[finding.level]} {escape(finding.what)}{advice}"
        console.print(line, soft_wrap=True)
    if plan.fits:
        console.print(f"[green]ok[/]: {escape(str(path))} fits.")
        return
    console.print(f"[red]does not fit[/]: {escape(str(path))}")
    _print_advice(changes, fix)


def _findings(plan: MemoryPlan) -> list[Finding]:
    return [*plan.findings(), *find_absent(plan.config)]


def _row(plan: MemoryPlan, process: ProcessEstimate) -> tuple[str, ...]:
    gpus = f" x {process.gpus_per_process} GPUs" if process.gpus_per_process > 1 else ""
    parts = largest(process.device, NUM_SHOWN)
    return (
        MARKS["problem" if plan.overflow(process) else "ok"],
        escape(process.name),
        f"{process.num_processes}{gpus}",
        amount(process.num_bytes),
        amount(plan.room(process)),
        "\n".join(f"{amount(part.num_bytes)} {part.name}" for part in parts),
        amount(process.host_bytes),
    )


def _print_advice(changes: Sequence[Change], fix: Sequence[Change] | None) -> None:
    if changes:
        table = Table("change", "saves per GPU", "fits", "training", title="What to change")
        for change in changes:
            fits = "yes" if change.fits else "not alone"
            training = "the same" if change.is_exact else "differs"
            table.add_row(escape(change.describe()), amount(change.num_bytes), fits, training)
        console.print(table)
    if fix is None:
        console.print(
            "No combination of these changes fits: use larger GPUs, more nodes or a smaller model."
        )
    else:
        overrides = " ".join(change.describe() for change in fix)
        console.print(f"This fits: {escape(overrides)}", soft_wrap=True)


def _as_data(
    plan: MemoryPlan, changes: Sequence[Change], fix: Sequence[Change] | None
) -> dict[str, Any]:
    return {
        "fits": plan.fits,
        "hardware": asdict(plan.hardware),
        "num_gpus": plan.num_gpus,
        "node_bytes": round(plan.node_bytes),
        "layout": as_data(plan.layout),
        "processes": [
            {
                **asdict(process),
                "num_bytes": round(process.num_bytes),
                "host_bytes": round(process.host_bytes),
                "room": round(plan.room(process)),
            }
            for process in plan.processes
        ],
        "findings": [asdict(finding) for finding in _findings(plan)],
        "changes": [
            {
                "overrides": change.overrides,
                "num_bytes": round(change.num_bytes),
                "fits": change.fits,
                "is_exact": change.is_exact,
            }
            for change in changes
        ],
        "fix": None if fix is None else [o for change in fix for o in change.overrides],
    }
