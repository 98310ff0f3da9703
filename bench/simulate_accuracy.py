"""How well the simulator predicts the step time of configurations that it was not fitted to.

    python bench/simulate_accuracy.py FOLDER [--rounds 2] [--steps 8]

Trains a tiny model with the torch engine on this machine's CPU: three configurations to fit to, and
two that differ from them in tasks, samples and reply length. The configurations alternate, because
machine speed drifts. Prints measured and predicted seconds per step; the predictions use only the
configuration and the fit. Runs that FOLDER has already are not repeated.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli_w

from pettingllms.config import load_config
from pettingllms.models import make_tiny
from pettingllms.models.tiny import texts_of
from pettingllms.preflight.hardware import Hardware
from pettingllms.simulation.calibrate import fit_runs
from pettingllms.simulation.calibration import Calibration, write_calibration
from pettingllms.simulation.recorded import recorded_steps
from pettingllms.simulation.report import Report
from pettingllms.simulation.simulate import Question, simulate_here

FITTED = {"a": (8, 4, 16), "b": (16, 4, 32), "c": (8, 8, 64)}
"""Tasks, samples per task and tokens per reply of the runs that speeds are fitted to."""
HELD_OUT = {"d": (12, 6, 24), "e": (16, 8, 48)}
ATTEMPTS = 5
PARTS = ("sampling", "learning", "publishing")


def config_of(name: str, model: Path, num_steps: int) -> dict[str, Any]:
    """A planner and a checker on two adapters of one tiny model."""
    num_tasks, num_samples, num_tokens = {**FITTED, **HELD_OUT}[name]
    policy = {"kind": "lora", "model": str(model), "lr": 1e-6}
    return {
        "env": {"id": "plan_path-v1", "terse": True, "width": 4, "height": 4, "max_rounds": 1},
        "algo": {"type": "grpo"},
        "policies": {"planner": policy, "checker": policy},
        "roles": {"planner": "planner", "checker": "checker"},
        "rollout": {
            "num_tasks": num_tasks,
            "num_samples": num_samples,
            "max_reply_tokens": num_tokens,
        },
        "inference": {"engine": "torch", "max_model_len": 512},
        "cluster": {"device": "cpu"},
        "train": {"num_steps": num_steps, "save_every": 1000},
        "guard": {"action": "off"},
    }


def train(name: str, number: int, folder: Path, model: Path, num_steps: int) -> Path:
    """Train one configuration, unless it is there already; the run folder."""
    run = folder / f"{name}{number}"
    if not run.exists():
        path = folder / f"{name}.toml"
        path.write_text(tomli_w.dumps(config_of(name, model, num_steps)), encoding="utf-8")
        command = [sys.executable, "-m", "pettingllms", "train", str(path), "--out", str(run)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        for _ in range(ATTEMPTS):
            with (folder / f"{name}{number}.log").open("wb") as log:
                code = subprocess.run(
                    command, stdout=log, stderr=subprocess.STDOUT, env=env, check=False
                ).returncode
            if not code:
                break
            shutil.rmtree(run, ignore_errors=True)  # Ray does not start on a busy machine
        else:
            raise SystemExit(f"{' '.join(command)} failed; see {folder / f'{name}{number}.log'}")
    return run


def parts_of(runs: Iterable[Path]) -> dict[str, float]:
    """Median seconds of each part, and of whole steps, over the steps of some runs."""
    steps = [step.seconds for run in runs for step in recorded_steps(run)]
    names = [*PARTS, "step"]
    return {name: statistics.median(one[name] for one in steps) for name in names}


def predict(name: str, folder: Path, calibration: Calibration) -> Report:
    """What the simulator expects of a configuration."""
    nothing = Hardware("cpu", 0, 1, 1)
    question = Question(load_config(folder / f"{name}.toml"), nothing, num_steps=20)
    return simulate_here(question, calibration)


def print_row(name: str, role: str, measured: dict[str, float], found: Report) -> None:
    """One row of the table."""
    cells = [f"{measured[part]:.3f} / {found.parts[part]:.3f}" for part in PARTS]
    error = found.seconds_per_step / measured["step"] - 1
    sizes = " x ".join(map(str, {**FITTED, **HELD_OUT}[name]))
    total = f"{measured['step']:.3f} / {found.seconds_per_step:.3f}"
    print(f"| {sizes} | {role} | {' | '.join(cells)} | {total} | {error:+.1%} |")


def main() -> None:
    """Train, fit, predict and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model"
    if not model.exists():
        from pettingllms.envs import make_env

        texts = texts_of([make_env("plan_path-v1", terse=True, width=4, height=4)], 20)
        make_tiny(model, texts=texts, symbols=True, vocab_size=280)
    names = [*FITTED, *HELD_OUT]
    runs: dict[str, list[Path]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names:
            runs[name].append(train(name, number, folder, model, options.steps))
            print(f"trained {name}{number}", file=sys.stderr, flush=True)
    chosen = [run for name in FITTED for run in runs[name]]
    calibration = fit_runs([(run, load_config(run / "config.toml", of_run=True)) for run in chosen])
    write_calibration(calibration, folder / "calibration.json")
    print("Seconds, measured / predicted:")
    print("| tasks x samples x tokens | | sampling | learning | publishing | step | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        role = "fitted" if name in FITTED else "held out"
        print_row(name, role, parts_of(runs[name]), predict(name, folder, calibration))


if __name__ == "__main__":
    main()
