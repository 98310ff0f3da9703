"""How much faster asynchronous training is with an engine and a learner that have a core each.

    python bench/async_speed.py FOLDER [--rounds 3] [--steps 14]

Trains one configuration synchronously and with `rollout.max_staleness = 1`, in turn. As soon as a
run has its processes, the learner is pinned to one core and everything that samples to another, as
if each had a device. Prints the seconds of each phase, seconds per step, their ratio, and the idle
shares. The limit of the ratio is 2, if both phases take equally long. Needs an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from pettingllms.envs import make_env
from pettingllms.models import make_tiny
from pettingllms.models.tiny import texts_of

SAMPLING, LEARNING = 0, 1
"""Cores."""
WARMUP = 4
"""Steps that are not counted: the first compile and fill the buffer."""
SHOWN = ("time/step", "time/sampling", "time/learning", "idle/engines", "idle/learners")
MODES = {"synchronous": 0, "asynchronous": 1}


def config_of(model: Path, num_steps: int, max_staleness: int, epochs: int) -> dict[str, Any]:
    """A planner and a checker on one full model, with an engine and a learner."""
    return {
        "env": {"id": "plan_path-v1", "terse": True, "width": 4, "height": 4, "max_rounds": 1},
        "algo": {"type": "grpo"},
        "policies": {"shared": {"kind": "full", "model": str(model), "lr": 1e-6}},
        "rollout": {
            "num_tasks": 32,
            "num_samples": 8,
            "max_reply_tokens": 32,
            "max_staleness": max_staleness,
        },
        "inference": {"engine": "torch", "max_model_len": 256, "max_num_seqs": 256},
        "learner": {"max_batch_tokens": 16_384, "num_epochs": epochs},
        "cluster": {"device": "cpu"},
        "train": {"num_steps": num_steps, "save_every": 1000},
        "guard": {"action": "off"},
        "log": {"episodes": False},
    }


def descendants(pid: int) -> Iterator[int]:
    """All processes below one."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def pin(pid: int) -> None:
    """Pin all threads of a run to their cores."""
    for process in (pid, *descendants(pid)):
        with suppress(OSError):
            title = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
            is_learner = "NodeRank" in title
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(OSError):
                    os.sched_setaffinity(int(thread.name), {LEARNING if is_learner else SAMPLING})


def keep_pinned(process: "subprocess.Popen[bytes]") -> None:
    """Pin a run's processes until it ends, because threads come and go."""
    while process.poll() is None:
        pin(process.pid)
        time.sleep(0.5)


def train(config: dict[str, Any], run: Path) -> list[dict[str, Any]]:
    """The metrics of a run's steps after the warm-up."""
    path = run.with_suffix(".toml")
    path.write_text(tomli_w.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "pettingllms", "train", str(path), "--out", str(run)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with run.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
        pinning = threading.Thread(target=keep_pinned, args=(process,))
        pinning.start()
        code = process.wait()
        pinning.join()
    if code:
        raise SystemExit(f"{' '.join(command)} failed; see {run.with_suffix('.log')}")
    rows = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row) for row in rows][WARMUP:]


def median(rows: list[dict[str, Any]], key: str) -> float:
    """The median of a metric over steps."""
    return statistics.median(row[key] for row in rows)


def main() -> None:
    """Train in turn and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--epochs", type=int, default=1, help="of learning, to balance the phases")
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True)
    texts = texts_of([make_env("plan_path-v1", terse=True, width=4, height=4)], 20)
    model = make_tiny(folder / "model", texts=texts, symbols=True, vocab_size=280)
    ratios = []
    for number in range(options.rounds):
        seconds = {}
        for mode, max_staleness in MODES.items():
            config = config_of(model, options.steps, max_staleness, options.epochs)
            rows = train(config, folder / f"{mode}-{number}")
            seconds[mode] = median(rows, "time/step")
            shown = [f"{key} {median(rows, key):.2f}" for key in SHOWN if key in rows[-1]]
            print(f"{mode} {number}: {', '.join(shown)}", flush=True)
        ratios.append(seconds["synchronous"] / seconds["asynchronous"])
    print(f"asynchronous is {statistics.median(ratios):.2f} times as fast; rounds: {ratios}")


if __name__ == "__main__":
    main()
