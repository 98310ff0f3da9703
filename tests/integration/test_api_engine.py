"""The Python API over real learners and engines, called as a notebook calls it."""

import json
from pathlib import Path

import pytest
from running import run

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")

CELLS = """
import asyncio, json, sys
from pathlib import Path
import pettingllms as pl

folder = Path(sys.argv[1])
rows = [{"prompt": f"say {n}", "answer": str(n)} for n in range(8)]


async def cells():  # a notebook runs its cells on an event loop
    texts = [row["prompt"] for row in rows]
    model = pl.make_tiny(folder / "tiny", texts=texts, hidden_size=64, vocab_size=300)
    env = pl.single_turn(rows, lambda reply, answer: float(answer in reply))
    run = pl.train(
        model=model,
        env=env,
        lr=1e-3,
        num_steps=2,
        rollout={"num_tasks": 2, "num_samples": 4, "max_reply_tokens": 6},
        inference={"engine": "torch", "max_model_len": 96},
        cluster={"device": "cpu"},
        train={"save_every": 1},
        out=folder / "run",
    )
    run.resume(step=1)
    scores = run.evaluate(eval={"num_tasks": 1}).scores
    exported = run.export(folder / "exported")
    found = {
        "steps": [row["step"] for row in run.metrics()],
        "checkpoints": list(run.checkpoints()),
        "episodes": len(list(run.episodes())),
        "roles": list(scores),
        "files": sorted(file.name for file in exported.iterdir()),
    }
    (folder / "result.json").write_text(json.dumps(found))


asyncio.run(cells())
"""


def test_a_notebook_trains_resumes_evaluates_and_exports(tmp_path: Path) -> None:
    script = tmp_path / "cells.py"
    script.write_text(CELLS)
    printed = run(tmp_path / "log.txt", str(script), str(tmp_path), seconds=400)
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["steps"] == [1, 2]
    assert found["checkpoints"] == [1, 2]
    assert found["episodes"] == 16
    assert found["roles"] == ["assistant"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(found["files"])
    assert printed.count("step 2  assistant reward") == 2, "trained, and then resumed"
