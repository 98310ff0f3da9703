"""`quickstart`: a model is made, taught and trained, and something is to be seen within minutes."""

import json
import time
from pathlib import Path

from rich.markup import escape

from pettingllms.api.calls import free_folder
from pettingllms.cli.console import console
from pettingllms.cli.live import make_display
from pettingllms.config import RunConfig, load_config
from pettingllms.errors import ConfigError
from pettingllms.experiments.experiment import Model
from pettingllms.experiments.runner import ThisMachine
from pettingllms.preflight.machine import Finding
from pettingllms.preflight.run import inspect
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.trackers import METRICS_FILE

CONFIG = Path(__file__).with_name("quickstart.toml")
MODEL = Model(hidden_size=64, num_layers=4, mlp_size=192, head_dim=16, vocab_size=280, symbols=True)
ROLE = "checker"
"""Speaks last, so its success is the team's."""


def run_quickstart(out: Path | None, overrides: list[str]) -> Path:
    """Make a tiny model, let it imitate a noisy player, train it; the folder of the run."""
    began = time.monotonic()
    top = (out or free_folder(Path("runs"), "quickstart")).absolute()
    if top.exists() and any(top.iterdir()):
        raise ConfigError(str(top), ["is not empty; give another folder with --out"])
    taught = _config(overrides, top / "made")
    machine = ThisMachine()
    with console.status("making a model of 200,000 parameters, with random weights"):
        machine.make_model(MODEL, [load_config(CONFIG).env], 0, top / "made")
    _refuse_what_would_stop(taught, top)
    console.print("1. It imitates a noisy player, who walks into walls now and then.")
    folder = RunFolder(top / "teaching")
    folder.create(taught, supervised=True)
    with make_display(taught, "teaching", console) as display:
        machine.warm_start(taught, folder, top / "taught", display)
    console.print(
        "2. Planner and checker, both this model, learn from what their own replies come to."
    )
    config, run = _config(overrides, top / "taught"), RunFolder(top / "run")
    run.create(config)
    with make_display(config, "run", console) as display:
        machine.train(config, run, display)
    _say_how_it_went(run.path, time.monotonic() - began)
    return run.path


def _config(overrides: list[str], model: Path) -> RunConfig:
    return load_config(CONFIG, [*overrides, f"policies.shared.model={json.dumps(str(model))}"])


def _refuse_what_would_stop(config: RunConfig, out: Path) -> None:
    found: list[Finding] = [f for f in inspect(config, out) if f.level == "problem"]
    if found:
        raise ConfigError("quickstart", [f"{f.what}; {f.advice}" for f in found])


def _say_how_it_went(run: Path, seconds: float) -> None:
    rows = [json.loads(line) for line in (run / METRICS_FILE).read_text().splitlines()]
    solved = [row[f"roles/{ROLE}/success"] for row in rows]
    few = max(1, len(solved) // 4)
    first, last = (sum(part) / len(part) for part in (solved[:few], solved[-few:]))
    console.print(
        f"Mazes solved: {first:.0%} in the first {few} steps, {last:.0%} in the last {few}. "
        f"All of it took {seconds / 60:.1f} minutes."
    )
    console.print("Next:")
    for command, why in (
        (f"pettingllms view {run}", "curves, episodes, who was compared with whom"),
        (f"pettingllms report {run}", "one page in words"),
        ("pettingllms init my_project", "an environment of your own"),
    ):
        console.print(f"  [bold]{escape(command)}[/]  {why}", highlight=False, soft_wrap=True)
