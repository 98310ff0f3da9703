"""Make the figure of simulated utilization from 8 to 4,096 GPUs.

    python docs/simulated_scaling.py FILE [--gpus 8 64 512] [--draw-only]

Simulates teams of two roles with one LoRA adapter each on Qwen3-1.7B, 8B and 32B: asynchronous
training with the best split of the GPUs, and the synchronous loop on shared GPUs. Adds each result
to FILE, and does not repeat those that it has. Most of the time goes into 4,096 GPUs.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests" / "helpers"))

from qwen3_configs import write_config  # noqa: E402 - the sizes live with the tests

from pettingllms.config import RunConfig, parse_config  # noqa: E402
from pettingllms.experiments.scaling_figure import Line, Panel, draw_scaling  # noqa: E402
from pettingllms.preflight.hardware import find_hardware  # noqa: E402
from pettingllms.preflight.sizing import read_sizes  # noqa: E402
from pettingllms.simulation.placements import Placements  # noqa: E402
from pettingllms.simulation.simulate import (  # noqa: E402
    Question,
    best_at_scale,
    search_splits,
    simulate,
)

FIGURE = DOCS / "images" / "simulated_scaling.png"
MODELS = ("1.7B", "8B", "32B")
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
STALENESS = 2
TASKS_PER_GPU = 2
SEARCHED = 512
"""GPUs up to which splits are searched; a larger cluster gets the same share of learners."""


def config_of(model: Path, num_gpus: int, max_staleness: int) -> RunConfig:
    """A team of two roles with long-tailed replies, and work in proportion to the GPUs."""
    policy = {"kind": "lora", "model": str(model)}
    config: dict[str, Any] = {
        "env": {"id": "plan_path-v1"},
        "algo": {"type": "grpo"},
        "policies": {"planner": policy, "checker": policy},
        "roles": {"planner": "planner", "checker": "checker"},
        "rollout": {
            "num_tasks": TASKS_PER_GPU * num_gpus,
            "num_samples": 8,
            "max_reply_tokens": 8192,
            "max_staleness": max_staleness,
        },
        "inference": {"max_num_seqs": 256, "max_model_len": 12288},
        "learner": {"max_batch_tokens": 16384},
    }
    return parse_config(config)


def simulated(top: Path, name: str, num_gpus: int, max_staleness: int, share: float | None) -> Any:
    """The result of one point; None if it does not fit."""
    folder = top / name
    if not folder.exists():
        write_config(folder, name)
    config = config_of(folder, num_gpus, max_staleness)
    hardware = find_hardware("h100-80", max(1, num_gpus // 8), min(8, num_gpus))
    sizes = read_sizes(config)
    num_steps = 3 if num_gpus < 512 else 2
    question = Question(config, hardware, num_steps=num_steps)
    placements = Placements(config, hardware, sizes)
    if not max_staleness:
        placement = placements.colocated()
    elif share is None:
        placement, _ = best_at_scale(question, sizes, search_splits(question, sizes))
    else:
        placement = placements.separate(share)
    if placement is None:
        return None
    return asdict(simulate(replace(question, config=placement.config), sizes))


def simulate_all(file: Path, sizes: Sequence[int]) -> None:
    """Add the points that the file lacks."""
    known = read_points(file)
    with tempfile.TemporaryDirectory() as top:
        for num_gpus in sizes:
            for name in MODELS:
                for staleness in (STALENESS, 0):
                    key = (name, staleness, num_gpus)
                    if key in known:
                        continue
                    share = None
                    if num_gpus > SEARCHED and (at := known[name, staleness, SEARCHED]):
                        share = at["learner_gpus"] / at["num_gpus"]
                    found = simulated(Path(top), name, num_gpus, staleness, share)
                    known[key] = found
                    with file.open("a", encoding="utf-8") as opened:
                        opened.write(json.dumps([*key, found]) + "\n")


def read_points(file: Path) -> dict[tuple[str, int, int], Any]:
    """Results by model, staleness and number of GPUs."""
    if not file.exists():
        return {}
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {(name, staleness, gpus): found for name, staleness, gpus, found in lines}


def draw(file: Path) -> None:
    """Draw the points of a file."""
    points = read_points(file)
    panels = []
    for name in MODELS:
        lines = []
        for staleness in (STALENESS, 0):
            found = {
                size: points[name, staleness, size]
                for size in SIZES
                if points.get((name, staleness, size))
            }
            busy = {size: one["busy"] for size, one in found.items()}
            speed = {
                size: one["tokens_per_second"] / one["num_gpus"] for size, one in found.items()
            }
            lines.append(Line(staleness > 0, busy, speed))
        panels.append(Panel(f"Qwen3-{name}", lines))
    draw_scaling(panels, FIGURE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--gpus", type=int, nargs="*", default=SIZES)
    parser.add_argument("--draw-only", action="store_true")
    options = parser.parse_args()
    if not options.draw_only:
        simulate_all(options.file, options.gpus)
    draw(options.file)
