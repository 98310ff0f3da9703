"""`quickstart`: create a tiny model, warm-start it with SFT and train it, within minutes."""

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
"""Acts last, so its success is that of the team."""


def run_quickstart(out: Path | None, overrides: list[str]) -> Path:
    """Create a tiny model, imitate a noisy player, train; return the run folder."""
    began = time.monotonic()
    top = (out or free_folder(Path("runs"), "quickstart")).absolute()
    if top.exists() and any(top.iterdir()):
        raise ConfigError(str(top), ["is not empty; give another folder with --out"])
    taught = _config(overrides, top / "made")
    machine = ThisMachine()
    with console.status("creating a model of 200,000 parameters with random weights"):
        machine.make_model(MODEL, [load_config(CONFIG).env], 0, top / "made")
    _require_runnable(taught, top)
    console.print("1. SFT: imitate a noisy scripted player.")
    folder = RunFolder(top / "teaching")
    folder.create(taught, supervised=True)
    with make_display(taught, "teaching", console) as display:
        machine.warm_start(taught, folder, top / "taught", display)
    console.print("2. RL: train the model as planner and checker with AT-GRPO.")
    config, run = _config(overrides, top / "taught"), RunFolder(top / "run")
    run.create(config)
    with make_display(config, "run", console) as display:
        machine.train(config, run, display)
    _print_result(run.path, time.monotonic() - began)
    return run.path


def _config(overrides: list[str], model: Path) -> RunConfig:
    return load_config(CONFIG, [*overrides, f"policies.shared.model={json.dumps(str(model))}"])


def _require_runnable(config: RunConfig, out: Path) -> None:
    found: list[Finding] = [f for f in inspect(config, out) if f.level == "problem"]
    if found:
        raise ConfigError("quickstart", [f"{f.what}; {f.advice}" for f in found])


def _print_result(run: Path, seconds: float) -> None:
    rows = [json.loads(line) for line in (run / METRICS_FILE).read_text().splitlines()]
    solved = [row[f"roles/{ROLE}/success"] for row in rows]
    few = max(1, len(solved) // 4)
    first, last = (sum(part) / len(part) for part in (solved[:few], solved[-few:]))
    console.print(
        f"Mazes solved: {first:.0%} in the first {few} steps, {last:.0%} in the last {few}. "
        f"Total time: {seconds / 60:.1f} minutes."
    )
    console.print("Next:")
    for command, why in (
        (f"pettingllms view {run}", "show curves, episodes and advantages"),
        (f"pettingllms report {run}", "print a one-page report"),
        ("pettingllms init my_project", "start your own environment"),
    ):
        console.print(f"  [bold]{escape(command)}[/]  {why}", highlight=False, soft_wrap=True)
