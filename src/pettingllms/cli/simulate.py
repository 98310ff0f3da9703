"""`simulate`: print what a simulated run shows, or fit the simulator to measured runs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.errors import ConfigError
from pettingllms.preflight.hardware import find_hardware
from pettingllms.runs.trust import load_inspected_config, load_run_config
from pettingllms.simulation.assumptions import read_assumptions
from pettingllms.simulation.calibrate import fit_runs
from pettingllms.simulation.calibration import Calibration, read_calibration, write_calibration
from pettingllms.simulation.report import Report
from pettingllms.simulation.simulate import Answer, Question, answer, simulate_here

SIMULATED = "Simulated from assumed speeds: no GPU was measured."


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command."""

    nodes: int
    gpus_per_node: int
    gpu: str
    steps: int
    assume: tuple[str, ...]
    search: bool
    price: float | None
    calibration: Path | None
    seed: int


def simulate_config(path: Path, overrides: Sequence[str], options: Options, as_json: bool) -> None:
    """Simulate a configuration and print the result."""
    config = load_inspected_config(path, overrides, needs_data=False)
    hardware = find_hardware(options.gpu, options.nodes, options.gpus_per_node)
    assumed = read_assumptions(options.assume)
    question = Question(config, hardware, assumed, options.seed, options.steps, options.price)
    if options.calibration is not None:
        found = simulate_here(question, read_calibration(options.calibration))
        title = f"{path}, with speeds of {options.calibration}"
        _show(Answer(found, ""), title, "Simulated from measured speeds.", as_json)
        return
    _show(answer(question, options.search), f"{path} on {hardware.describe()}", SIMULATED, as_json)


def calibrate_runs(runs: Sequence[Path], out: Path | None) -> None:
    """Fit speeds to runs, write them, and print how well they agree."""
    if out is None:
        raise ConfigError("--out", ["--calibrate writes a file; give --out FILE"])
    configs = [load_run_config(run / "config.toml") for run in runs]
    calibration = fit_runs(list(zip(runs, configs, strict=True)))
    write_calibration(calibration, out)
    _print_fit(calibration)
    console.print(f"Wrote [bold]{escape(str(out))}[/]")


def _print_fit(calibration: Calibration) -> None:
    table = Table("run", "measured s/step", "simulated s/step", "difference", title="Calibration")
    for one in calibration.runs:
        table.add_row(
            escape(one.name),
            f"{one.measured:.3f}",
            f"{one.simulated:.3f}",
            f"{one.difference:+.1%}",
        )
    console.print(table)


def _show(found: Answer, title: str, origin: str, as_json: bool) -> None:
    if as_json:
        data = {"origin": origin, **asdict(found)}
        console.out(json.dumps(data), highlight=False)
        return
    columns = {
        "as configured": found.as_given,
        "best split": found.best,
        "synchronous, colocated": found.colocated,
    }
    reports = {name: one for name, one in columns.items() if one is not None}
    table = Table("", *reports, title=escape(title))
    for name, values in _rows(list(reports.values())):
        table.add_row(name, *values)
    console.print(table)
    for name, one in reports.items():
        change = f" → {one.change}" if one.change else ""
        console.print(f"[bold]{name}[/]: {escape(one.bottleneck + change)}", soft_wrap=True)
    if found.as_given is None:
        console.print(f"As configured, it does not fit: {escape(found.missing)}", soft_wrap=True)
    if found.overrides:
        console.print(f"Best split: {escape(' '.join(found.overrides))}", soft_wrap=True)
    for note in found.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True)
    console.print(origin, style="dim")


def _rows(reports: Sequence[Report]) -> list[tuple[str, list[str]]]:
    rows: list[tuple[str, Any]] = [
        ("GPUs: engines + learners", _gpus),
        ("busy", lambda one: f"{one.busy:.0%}"),
        ("busy: engines, learners", lambda one: f"{one.engine_busy:.0%}, {one.learner_busy:.0%}"),
        ("replies per engine", lambda one: f"{one.replies_per_engine:.1f}"),
        ("tokens per second", lambda one: f"{one.tokens_per_second:,.0f}"),
        ("seconds per step", lambda one: f"{one.seconds_per_step:.3g}"),
        *((f"  {part}", _part(part)) for part in reports[0].parts),
        ("staleness: mean, max", lambda one: f"{one.staleness_mean:.2f}, {one.staleness_max}"),
        ("dropped groups", lambda one: f"{one.dropped_share:.1%}"),
        ("GPU-hours per million tokens", lambda one: f"{one.gpu_hours_per_million:.3g}"),
        ("processes lost", lambda one: f"{one.num_failures}"),
    ]
    if reports[0].price is not None:
        rows.append(("dollars per million tokens", lambda one: f"{one.price:.2f}"))
    return [(name, [show(one) for one in reports]) for name, show in rows]


def _gpus(one: Report) -> str:
    return f"{one.num_gpus} shared" if one.colocated else f"{one.engine_gpus} + {one.learner_gpus}"


def _part(name: str) -> Any:
    return lambda one: f"{one.parts.get(name, 0.0):.3g}"
