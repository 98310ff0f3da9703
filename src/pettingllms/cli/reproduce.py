"""`reproduce`: run an experiment, with one line per part."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.markdown import Markdown
from rich.markup import escape

from pettingllms.cli.console import console
from pettingllms.errors import ConfigError
from pettingllms.experiments.experiment import find_experiment, load_experiment
from pettingllms.experiments.plan import ExperimentRequest
from pettingllms.experiments.preregistration import load_preregistration
from pettingllms.experiments.repetition import mismatches, read_results
from pettingllms.experiments.report import FIGURE, RESULTS, SLIDES, TABLE
from pettingllms.experiments.reproduce import reproduce
from pettingllms.experiments.results import Result
from pettingllms.experiments.runner import ThisMachine
from pettingllms.preflight.machine import find_gpus
from pettingllms.runtime.shipped import shipped

DOCS = Path("docs/results")
NO_JOBS = (
    "is for machines without GPUs, since parallel arms would share one GPU; start one command "
    "per seed instead, with CUDA_VISIBLE_DEVICES and --seed"
)


def reproduce_experiment(
    name: str,
    root: Path | None,
    quick: bool,
    seeds: Sequence[int],
    out: Path | None,
    docs: bool,
    joined: Sequence[Path] = (),
    jobs: int = 1,
    arms: Sequence[str] = (),
) -> None:
    """Run the missing parts of an experiment, and print its table and folder."""
    if jobs > 1 and find_gpus():
        raise ConfigError("--jobs", [NO_JOBS])
    source = find_experiment(name, root or shipped("experiments"))
    experiment = load_experiment(source)
    label = source.resolve().name
    command = f"pettingllms reproduce {name}" + (" --quick" if quick else "")
    folder = out or Path("runs/experiments") / (f"{label}-quick" if quick else label)
    floors = experiment.quick.floors if quick else []
    experiment = experiment.smoke_run() if quick else experiment
    plan = None if quick else load_preregistration(source, experiment)
    request = ExperimentRequest(experiment, source, folder, command, floors, joined, plan)
    kept = None if quick else _shipped(label)
    run = seeds or experiment.seeds
    short = reproduce(request, run, ThisMachine(), _notify, jobs, arms)
    console.print(Markdown((folder / TABLE).read_text(encoding="utf-8")))
    other = []
    if kept is not None:
        found = [one for one in read_results(folder / RESULTS) if one.seed in run]
        other = list(mismatches(experiment, found, kept))
    if docs:
        _copy(folder, DOCS / label)
    console.print(f"Results are in [bold]{escape(str(folder))}[/]")
    for problem in short:
        console.print(f"[bold red]learning is broken[/]: {escape(problem)}")
    for problem in other:
        console.print(f"[bold red]not reproduced[/]: {escape(problem)}")
    if kept and not other:
        place = escape(str(shipped("results") / label))
        console.print(f"Within tolerance of the shipped results in {place}")
    if short or other:
        raise typer.Exit(1)


def _shipped(label: str) -> list[Result] | None:
    """The shipped results to compare a full run with; read before the run."""
    path = shipped("results") / label / RESULTS
    if path.is_file():
        return read_results(path)
    _notify(f"no shipped results to compare with: there is no {path}")
    return None


def _notify(text: str) -> None:
    console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, soft_wrap=True)


def _copy(folder: Path, to: Path) -> None:
    """Copy the results to the docs."""
    to.mkdir(parents=True, exist_ok=True)
    for name in (TABLE, FIGURE, SLIDES, RESULTS):
        if (folder / name).exists():
            shutil.copy(folder / name, to)
    console.print(f"Table, figure, slides and numbers are in [bold]{escape(str(to))}[/]")
