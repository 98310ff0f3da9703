"""Suites run by the command on small data, and the published protocols that they must follow."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.inference.http import text_ids
from pettingllms.types import Sample, SampleRequest

WHOLE = (1.0, 0)
PROTOCOLS: dict[str, tuple[int, float | None, tuple[float, int], set[int]]] = {
    "aime": (16, 0.6, (0.95, 0), {4096}),
    "anli": (1, 0.0, WHOLE, {300}),
    "apps": (1, 0.6, (0.95, 20), {2048}),
    "at_grpo": (1, 0.6, (0.95, 20), {2048, 4096, 8192}),
    "code_contests": (1, 0.6, (0.95, 20), {2048}),
    "gsm8k": (1, 0.0, WHOLE, {2048}),
    "hanabi": (1, None, WHOLE, {512}),
    "hotpotqa": (1, 0.6, (0.95, 0), {800}),
    "humaneval": (1, 0.0, WHOLE, {1024}),
    "livecodebench": (10, 0.2, (0.95, 0), {4096}),
    "maporl": (1, None, WHOLE, {300}),
    "math500": (1, 0.0, WHOLE, {2048}),
    "mbpp": (1, 0.0, WHOLE, {1024}),
    "olympiad": (1, 0.0, WHOLE, {2048}),
    "spider": (1, 0.0, WHOLE, {1024}),
    "svamp": (1, 0.0, WHOLE, {2048}),
}
"""Samples per task, temperature, top-p and top-k, and reply tokens."""
SUMS = [{"question": f"What is {n}+{n}?", "answer": f"It is\n#### {2 * n}"} for n in range(5)]
PROGRAMS = [
    {
        "task_id": n,
        "text": f"Write add(a, b), the sum of a, b and {n}.",
        "code": f"def add(a, b):\n    return a + b + {n}",
        "test_list": [f"assert add({k}, 1) == {k + 1 + n}" for k in range(3)],
    }
    for n in range(3)
]


@dataclass
class Recorded:
    """A model that answers 4 to everything and keeps what it was asked."""

    asked: list[SampleRequest] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> list[Sample]:
        self.asked.append(request)
        reply = text_ids("\\boxed{4} <answer>def add(a, b):\n    return a + b</answer>")
        return [Sample(reply, None, 0, "stop")] * request.num_samples


def rows(folder: Path, kind: str) -> str:
    path = folder / f"{kind}.jsonl"
    found = SUMS if kind == "problems" else PROGRAMS
    path.write_text("".join(f"{json.dumps(row)}\n" for row in found))
    return str(path)


def run(folder: Path, *args: str, code: int = 0) -> tuple[str, dict[str, Any]]:
    result = CliRunner().invoke(app, ["eval", *args, "--out", str(folder / "out")])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output, json.loads((folder / "out" / "results.json").read_text())
