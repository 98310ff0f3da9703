"""Exercise what only GPUs can, in about ten minutes on one, two or eight of them.

    python scripts/gpu_smoke.py                     # all checks that fit this machine's GPUs
    python scripts/gpu_smoke.py --only flex_trees   # one of them
    python scripts/gpu_smoke.py --cpu               # their CPU twins on the tiny model

Every check is a separate process. It prints ok, failed or skipped with the reason, and at the end
a Markdown report to paste into an issue. THE AUTHORS HAVE NEVER RUN THIS ON A GPU: the report is
what tells whether these paths work.
"""

import argparse
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from getpass import getuser
from pathlib import Path
from typing import Any

CHECK_SECONDS = 300.0
TASKS = Path(__file__).with_name("gpu_smoke_tasks.py")
NEVER = "The authors have never run this script on a GPU."
NO_GPU = "no NVIDIA GPU found (nvidia-smi -L); --cpu runs the CPU twins of these checks"
GPU_QUERY = "--query-gpu=name,memory.total,driver_version,compute_cap"
GIB = 2**30


class SkipError(Exception):
    """A check that this machine cannot run; the message is the reason."""


class FailError(Exception):
    """A check that found something wrong."""


@dataclass(frozen=True)
class Lab:
    """What checks run on."""

    folder: Path
    model: Path
    num_gpus: int
    """0: the CPU twins."""

    def needs(self, num_gpus: int) -> None:
        """Skip unless there are so many GPUs; CPU twins need none."""
        if self.num_gpus and self.num_gpus < num_gpus:
            raise SkipError(f"needs {num_gpus} GPUs")

    def config(self, policies: dict[str, Any], **sections: Any) -> dict[str, Any]:
        """A short run of two roles; sections are merged into the defaults."""
        names = [*policies, *policies][:2]
        config: dict[str, Any] = {
            "seed": 1,
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "grpo"},
            "policies": policies,
            "roles": dict(zip(("player_x", "player_o"), names, strict=True)),
            "rollout": {"num_tasks": 4, "num_samples": 2, "max_reply_tokens": 8},
            "inference": {"max_model_len": 256, "max_num_seqs": 16},
            "train": {"num_steps": 2, "save_every": 2},
            "cluster": {"device": "gpu" if self.num_gpus else "cpu"},
        }
        if not self.num_gpus:
            config["inference"]["engine"] = "torch"
        for name, values in sections.items():
            config[name] = {**config.get(name, {}), **values}
        return config

    def policy(self, kind: str, **options: Any) -> dict[str, Any]:
        """A policy on the model."""
        rates = {"full": 1e-4, "lora": 1e-3}
        learning = {"lr": rates[kind]} if kind in rates else {}
        return {"kind": kind, "model": str(self.model), **learning, **options}

    def child(self, task: str, config: dict[str, Any]) -> dict[str, Any]:
        """Run a task of this script in a separate process; what it found."""
        place = Path(tempfile.mkdtemp(prefix=f"{task}-", dir=self.folder))
        (place / "config.json").write_text(json.dumps(config))
        with (place / "log.txt").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(TASKS), task, str(place)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PETTINGLLMS_TRACEBACK": ""},
                start_new_session=True,
            )
            try:
                code = process.wait(CHECK_SECONDS)
            except subprocess.TimeoutExpired:
                raise FailError(f"not done after {CHECK_SECONDS:g} s") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()
        said = (place / "log.txt").read_text(errors="replace").strip()
        if code:
            raise FailError("\n".join(said.splitlines()[-15:]) or f"exit code {code}")
        found: dict[str, Any] = json.loads((place / "found.json").read_text())
        return found

    def trained(self, config: dict[str, Any]) -> str:
        """A training run: both sides agree on the weights before and after, or it stops."""
        rows = self.child("train", config)["rows"]
        return "; ".join(mismatches(row) for row in rows[-1:])


def mismatches(row: dict[str, float]) -> str:
    """What a step measured between engines and learners."""
    kinds = (("mismatch", "train-inference mismatch"), ("canary_difference", "canary"))
    return ", ".join(
        f"{name.split('/')[1]}: {title} {value:.3g}"
        for kind, title in kinds
        for name, value in row.items()
        if name.startswith("policies/") and name.endswith(f"/{kind}")
    )


def lora_bf16(lab: Lab) -> str:
    """Two LoRA policies on one base in bfloat16; the engine and the learner share a GPU."""
    dtypes = {"dtype": "bfloat16"} if lab.num_gpus else {}
    policies = {"x": lab.policy("lora"), "o": lab.policy("lora")}
    shared = {"placement": "colocated"}
    return lab.trained(lab.config(policies, inference=dtypes, learner=dtypes, cluster=shared))


def sleep_wake(lab: Lab) -> str:
    """A full policy; the engine sleeps while the learner on the same GPU works."""
    config = lab.config({"p": lab.policy("full")}, cluster={"placement": "colocated"})
    return lab.trained(config)


def weight_transfer(lab: Lab) -> str:
    """A full policy whose weights go from one GPU to another (NCCL)."""
    lab.needs(2)
    return lab.trained(lab.config({"p": lab.policy("full")}))


def two_engines(lab: Lab) -> str:
    """Weights of a learner of two ranks go to two engines."""
    lab.needs(4)
    replicas, ranks = {"num_replicas": 2}, {"num_ranks": 2}
    return lab.trained(lab.config({"p": lab.policy("full")}, inference=replicas, learner=ranks))


def learner_ranks(lab: Lab) -> str:
    """FSDP2 over two ranks (NCCL), without an engine."""
    lab.needs(2)
    sft = {"player": "minimax", "num_episodes": 4, "num_steps": 2}
    config = lab.config({"p": lab.policy("full")}, learner={"num_ranks": 2}, sft=sft)
    return f"last loss {lab.child('sft', config)['loss']:.3g}"


def tensor_parallel(lab: Lab) -> str:
    """An engine over two GPUs."""
    lab.needs(2)
    over = {"tensor_parallel": 2} if lab.num_gpus else {}
    config = lab.config({"p": lab.policy("frozen")}, inference=over, eval={"num_tasks": 4})
    return f"{lab.child('evaluate', config)['num_roles']} roles played"


def flex_trees(lab: Lab) -> str:
    """Attention in token trees and its gradients, against a dense mask."""
    found = lab.child("flex", {"device": "cuda" if lab.num_gpus else "cpu"})
    if found["output"] > 1e-2 or found["gradient"] > 1e-2:
        raise FailError(f"differs from the dense mask: {found}")
    return f"relative difference {found['output']:.2g}, of gradients {found['gradient']:.2g}"


def adamw_8bit(lab: Lab) -> str:
    """The 8-bit optimizer of torchao."""
    from importlib.util import find_spec

    if not lab.num_gpus:
        raise SkipError("runs only on GPUs")
    if find_spec("torchao") is None:
        raise SkipError("torchao is not installed")
    sft = {"player": "minimax", "num_episodes": 4, "num_steps": 2}
    config = lab.config({"p": lab.policy("full")}, learner={"optimizer": "adamw_8bit"}, sft=sft)
    return f"last loss {lab.child('sft', config)['loss']:.3g}"


def memory_plan(lab: Lab) -> str:
    """The plan of `check --gpu` for a learner, against the memory that PyTorch allocated."""
    config = lab.config({"p": lab.policy("full")}, learner={"max_batch_tokens": 4096})
    found = lab.child("memory", config)
    planned, used = found["planned"] / GIB, found["used"] / GIB
    told = f"planned {planned:.3f} GiB, used {used:.3f} GiB"
    if used > planned:
        raise FailError(f"the plan is too low: {told}")
    return told


CHECKS: tuple[Callable[[Lab], str], ...] = (
    lora_bf16,
    weight_transfer,
    sleep_wake,
    tensor_parallel,
    learner_ranks,
    flex_trees,
    memory_plan,
    adamw_8bit,
    two_engines,
)


@dataclass
class Report:
    """The results, as they come and in the end."""

    num_gpus: int
    rows: list[tuple[str, str, float, str]] = field(default_factory=list)

    def run(self, check: Callable[[Lab], str], lab: Lab) -> None:
        """Run a check and print its result."""
        print(f"{check.__name__:16} ...", end=" ", flush=True)
        start = time.monotonic()
        try:
            result, detail = "ok", check(lab)
        except SkipError as reason:
            result, detail = "skipped", str(reason)
        except FailError as problem:
            result, detail = "failed", str(problem)
        seconds = time.monotonic() - start
        self.rows.append((check.__name__, result, seconds, detail))
        print(f"{result} in {seconds:.0f} s: {scrub(detail)}", flush=True)

    @property
    def num_failed(self) -> int:
        return sum(result == "failed" for _, result, _, _ in self.rows)

    def markdown(self) -> str:
        """The report for an issue."""
        from pettingllms.runs.folder import versions

        where = f"{self.num_gpus} GPUs" if self.num_gpus else "CPU twins"
        lines = [f"### GPU smoke test: {where}", "", NEVER, ""]
        lines += ["| check | result | seconds | detail |", "| --- | --- | --- | --- |"]
        for name, result, seconds, detail in self.rows:
            last = detail.strip().splitlines()[-1] if detail else ""
            lines.append(f"| {name} | {result} | {seconds:.0f} | {last.replace('|', '/')} |")
        for name, result, _, detail in self.rows:
            if result == "failed":
                lines += ["", f"`{name}`:", "", "```text", detail, "```"]
        lines += ["", "```text", *(f"{k} {v}" for k, v in versions().items())]
        lines += [
            *asked("nvidia-smi", GPU_QUERY, "--format=csv"),
            *asked("nvidia-smi", "topo", "-m"),
        ]
        return scrub("\n".join([*lines, "```", ""]))


def asked(*command: str) -> list[str]:
    """What a program prints, or nothing."""
    if shutil.which(command[0]) is None:
        return []
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return re.sub(r"\x1b\[[0-9;]*m", "", found.stdout).rstrip().splitlines()


def scrub(text: str) -> str:
    """The text without names of this machine, its user and their folders, and without secrets."""
    own = {str(Path.home()): "~", tempfile.gettempdir(): "TMP", socket.gethostname(): "HOST"}
    for name, value in os.environ.items():
        if re.search(r"TOKEN|KEY|SECRET|PASSWORD", name) and len(value) > 5:
            own[value] = f"${name}"
    if len(getuser()) > 2:
        own[getuser()] = "USER"
    for one in sorted((one for one in own if len(one) > 1), key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])", own[one], text)
    return text


def find_gpus() -> int:
    """The number of GPUs, without a CUDA library."""
    return sum(line.startswith("GPU ") for line in asked("nvidia-smi", "-L"))


def describe(checks: Sequence[Callable[[Lab], str]]) -> str:
    """What each check does."""
    return "\n".join(f"{one.__name__:16} {(one.__doc__ or '').strip()}" for one in checks)


def main() -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cpu", action="store_true", help="run the CPU twins of the checks")
    parser.add_argument("--only", nargs="+", choices=[one.__name__ for one in CHECKS])
    parser.add_argument("--model", type=Path, help="model folder; default: a tiny random one")
    parser.add_argument("--minutes", type=float, default=10, help="start no check after these")
    parser.add_argument("--out", type=Path, default=Path("gpu_smoke.md"), help="the report")
    options = parser.parse_args()
    checks = [one for one in CHECKS if one.__name__ in (options.only or [one.__name__])]
    num_gpus = 0 if options.cpu else find_gpus()
    if not num_gpus and not options.cpu:
        print(f"{NEVER}\n\nThe checks:\n{describe(checks)}\n\n{NO_GPU}")
        return 2
    return run_all(checks, num_gpus, options)


def run_all(
    checks: Sequence[Callable[[Lab], str]], num_gpus: int, options: argparse.Namespace
) -> int:
    """Run the checks and write the report; the exit code."""
    from pettingllms.models import make_tiny

    report, end = Report(num_gpus), time.monotonic() + 60 * options.minutes
    print(f"{NEVER} {platform.system()}, {num_gpus or 'no'} GPUs", flush=True)
    with tempfile.TemporaryDirectory(prefix="pettingllms-smoke-") as folder:
        model = options.model or make_tiny(Path(folder) / "tiny", hidden_size=128)
        lab = Lab(Path(folder), model.resolve(), num_gpus)
        for check in checks:
            if time.monotonic() > end:
                report.rows.append((check.__name__, "skipped", 0.0, "no time left (--minutes)"))
                continue
            report.run(check, lab)
    text = report.markdown()
    options.out.write_text(text, encoding="utf-8")
    print(f"\n{text}\nPaste this report, {options.out}, into an issue.")
    return 1 if report.num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
