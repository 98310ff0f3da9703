"""Runs of the real program in separate processes, and the files they left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from pettingllms.sandbox.process_usage import descendants

HERE = Path(__file__).parent
FOLDERS = (HERE, HERE.parent / "helpers", HERE.parent / "faults")
ENV = f"{HERE / 'digits.py'}:Digits"
Config = dict[str, Any]


def config_of(policies: Config, roles: dict[str, str], **sections: Any) -> Config:
    """A small run on the digits environment; sections are merged into the defaults."""
    config: Config = {
        "seed": 7,
        "env": {"id": ENV, "num_roles": len(roles)},
        "algo": {"type": "dr_mas"},
        "policies": policies,
        "roles": roles,
        "rollout": {"num_tasks": 2, "num_samples": 3, "max_reply_tokens": 12},
        "inference": {"max_model_len": 256, "max_num_seqs": 16},
        "train": {"num_steps": 3, "save_every": 1, "keep_checkpoints": 100},
    }
    for name, values in sections.items():
        config[name] = {**config.get(name, {}), **values} if isinstance(values, dict) else values
    return config


def write_config(path: Path, config: Config) -> Path:
    path.write_text(tomli_w.dumps(config), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "VLLM_"))}
    return kept | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "PETTINGLLMS_TRACEBACK": "1",
        "PYTHONPATH": os.pathsep.join([*map(str, FOLDERS), *_given_path()]),
    }


def _given_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def start(
    log: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to a file: engines inherit it, and a pipe would hang."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment() | dict(variables or {}),
            start_new_session=True,
        )


def kill_all(pid: int) -> None:
    """Kill -9 of a run with all its processes."""
    for victim in {pid, *descendants(pid)}:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def run(log: Path, *arguments: str, seconds: float = 600, code: int = 0) -> str:
    """Run a program to its end; what it said."""
    process = start(log, *arguments)
    try:
        found = process.wait(timeout=seconds)
    finally:
        if process.poll() is None:
            kill_all(process.pid)
    said = log.read_text(errors="replace")
    assert found == code, f"exit code {found}\n{said[-4000:]}"
    return said


def cli(log: Path, *arguments: object, seconds: float = 600, code: int = 0) -> str:
    """Run `pettingllms`."""
    return run(log, "-m", "pettingllms", *map(str, arguments), seconds=seconds, code=code)


def drive(folder: Path, scenario: str, config: Config, **options: Any) -> Any:
    """Run a scenario of drive.py; the JSON that it wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_config(folder / "config.toml", config)
    result = folder / "result.json"
    script = str(HERE / "drive.py")
    said = run(
        folder / "log.txt", script, scenario, str(path), str(result), json.dumps(options),
        seconds=900,
    )  # fmt: skip
    print(said[-2000:])
    return json.loads(result.read_text())


def wait_for(condition: Any, seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds:g} s for {what}")


def metrics_of(run_folder: Path) -> list[dict[str, Any]]:
    """What was measured, without what depends on the clock."""
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    return [
        {
            key: value
            for key, value in json.loads(line).items()
            if not key.startswith(("time/", "idle/"))
            and not key.endswith(("tokens_per_second", "/seconds"))
        }
        for line in lines
    ]
