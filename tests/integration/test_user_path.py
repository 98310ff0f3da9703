"""A user's path: download GSM8K from a hub, train a tiny twin of a recipe, evaluate it on a suite.

Each step is the real command in a separate process. The hub is a server on loopback that the real
client of the Hugging Face hub talks to; engines, learners and Ray are real; the model is a random
Qwen3 of a million parameters with a chat template that reads `enable_thinking`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, hub_running
from running import environment

pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("huggingface_hub", reason="needs the extra `data`")
duckdb = pytest.importorskip("duckdb", reason="needs the extra `data`")

RECIPE = Path(__file__).parents[2] / "configs" / "recipes" / "debate_gsm8k_l2_1.7b.toml"
TWIN = """
extends = "{recipe}"

[policies.debater_1]
model = "{model}"

[policies.debater_2]
model = "{model}"

[rollout]
num_tasks = 2
num_samples = 2
max_reply_tokens = 8

[learner]
num_ranks = 1

[inference]
engine = "torch"
num_replicas = 1
max_model_len = 768

[train]
num_steps = 2
eval_every = 2

[eval]
num_tasks = 2
"""
NO_THOUGHTS = """
{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
"""


def row(n: int, verb: str) -> dict[str, str]:
    return {
        "question": f"Ann {verb} {n} apples and {n + 2} pears. How many pieces of fruit is that?",
        "answer": f"It is {n} + {n + 2}.\n#### {2 * n + 2}",
    }


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with GSM8K in its published layout."""
    with hub_running() as found:
        files = {"README.md": b"---\nlicense: mit\n---\n"}
        for split, verb, count in (("train", "buys", 30), ("test", "sells", 12)):
            (raw := tmp_path / "rows.jsonl").write_text(
                "".join(f"{json.dumps(row(n, verb))}\n" for n in range(count))
            )
            made = tmp_path / "rows.parquet"
            duckdb.connect().execute(f"copy (from read_json('{raw}')) to '{made}'")
            files[f"main/{split}-00000-of-00001.parquet"] = made.read_bytes()
        found.add("openai/gsm8k", files, "dataset")
        yield found


def tiny_qwen3(folder: Path) -> Path:
    from pettingllms.envs import make_env
    from pettingllms.models import make_tiny
    from pettingllms.models.tiny import texts_of

    env = make_env("debate-v1", num_debaters=2, num_rounds=3, reasons=True)
    make_tiny(folder, "qwen3", texts_of([env], 8), 64, 1, 512)
    with (folder / "chat_template.jinja").open("a") as template:
        template.write(NO_THOUGHTS)
    return folder


@pytest.mark.engine
@pytest.mark.slow
def test_data_get_train_a_twin_of_a_recipe_and_eval_a_suite(hub: Hub, tmp_path: Path) -> None:
    model = tiny_qwen3(tmp_path / "model")
    variables = environment() | {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "*",
        "PETTINGLLMS_DATASETS": str(tmp_path / "data"),
        "COLUMNS": "160",
        "HOME": str(tmp_path),
    }
    del variables["PETTINGLLMS_TRACEBACK"]  # messages as users see them
    variables["PYTHONPATH"] = os.pathsep.join(
        [str(RECIPE.parents[2] / "src"), variables["PYTHONPATH"]]
    )

    def command(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pettingllms", *words],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    (tmp_path / "twin.toml").write_text(TWIN.format(recipe=RECIPE, model=model))
    refused = command("train", "twin.toml", code=2)
    assert "run `pettingllms data get gsm8k`" in " ".join(refused.split())

    assert "license: mit" in command("data", "get", "gsm8k")
    asked = len(hub.seen)
    command("train", "twin.toml")
    (run,) = [path.parent for path in (tmp_path / "runs").glob("*/config.toml")]
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {one["step"] for one in steps} >= {1, 2}

    suite = ["eval", str(run), "--suite", "gsm8k", "--tasks", "4", "--samples", "2"]
    said = command(*suite)
    shown = " ".join(said.split())
    assert "GSM8K, debate" in shown
    assert "avg@2" in shown
    assert "published" in shown
    assert "Not the protocol of the suite: --tasks 4, --samples 2." in shown
    assert "set inference.max_model_len" in shown
    results = json.loads(next((tmp_path / "runs" / "suites").rglob("results.json")).read_text())
    assert results["player"]["kind"] == "run"
    for bench, form in zip(results["benches"], ("solo", "team"), strict=True):
        found = bench["forms"][form]
        assert (found["num_tasks"], found["num_samples"], found["unit"]) == (4, 2, "tokens")
        assert found["failed"] == {}
        assert found["tokens"] > 0
        assert found["seconds"] > 0
        assert list(found["tasks"]) == [
            f"test-main/test-00000-of-00001.parquet:{n}" for n in range(1, 5)
        ]
    assert "already done: GSM8K; GSM8K, debate" in " ".join(command(*suite).split())
    assert len(hub.seen) == asked, "neither training nor evaluation asks the hub"
