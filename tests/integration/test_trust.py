"""Runs of the real program: killed at any moment, interrupted, evaluated, exported, looked at."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from running import (
    cli,
    config_of,
    kill_all,
    metrics_of,
    run,
    start,
    wait_for,
    write_config,
)

from pettingllms.cluster.start import REMOTE
from pettingllms.runtime.ports import listeners
from pettingllms.sandbox.process_usage import descendants

pytestmark = pytest.mark.engine
NUM_KILLS = int(os.environ.get("PETTINGLLMS_TEST_KILLS", "1"))
"""For each kind of policy; the proof is with 10."""


def lora(model: Path) -> dict:
    return {"kind": "lora", "model": str(model), "rank": 8, "lr": 1e-3}


def recorded(policy: dict, recording: Path, **sections: object) -> dict:
    """A short run whose replies are recorded; a running baseline, a task list that starts anew."""
    return config_of(
        {"a": policy},
        {"role0": "a", "role1": "a"},
        algo={"type": "rae"},
        env={"num_train": 5},
        inference={"recording": str(recording)},
        **sections,
    )


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def everything(run_folder: Path) -> dict[str, object]:
    """All that two runs must agree on, to the last bit."""
    newest = max((run_folder / "checkpoints").glob("step-*"))
    episodes = sorted((run_folder / "episodes").iterdir())
    return {
        "manifest": json.loads((newest / "manifest.json").read_text()),
        "metrics": metrics_of(run_folder),
        "episodes": {file.name: file.read_bytes() for file in episodes},
    }


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("lora", "torch"),
        pytest.param("lora", "vllm", marks=pytest.mark.slow),
        pytest.param("full", "vllm", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_killed_goes_on_as_if_it_had_not(
    kind: str, engine: str, tiny: Path, tmp_path: Path
) -> None:
    policy = lora(tiny) if kind == "lora" else {"kind": "full", "model": str(tiny), "lr": 1e-3}
    recording = tmp_path / "recording"
    steps = {"train": {"num_steps": 6, "save_every": 2}}
    config = recorded(policy, recording, **steps)
    config["inference"]["engine"] = engine
    path = write_config(tmp_path / "config.toml", config)
    began = time.monotonic()
    cli(tmp_path / "whole.txt", "train", path, "--out", tmp_path / "whole")
    seconds = time.monotonic() - began
    expected = everything(tmp_path / "whole")
    assert expected["manifest"]["state"]["step"] == 6
    rng = random.Random(kind)
    for number in range(NUM_KILLS):
        folder, log = tmp_path / f"killed{number}", tmp_path / f"killed{number}.txt"
        process = start(log, "-m", "pettingllms", "train", str(path), "--out", str(folder))
        num_steps = 3 if NUM_KILLS == 1 else rng.randrange(7)
        wait_for(
            lambda seen=num_steps, run=folder: num_lines(run / "metrics.jsonl") >= seen,
            300,
            f"{num_steps} steps",
        )
        time.sleep(rng.uniform(0, 1) if num_steps else rng.uniform(0, seconds))
        over = process.poll() is not None
        kill_all(process.pid)
        process.wait()
        done = sorted(p.name for p in (folder / "checkpoints").glob("step-*"))
        print(f"kill {number} after step {num_steps}, over: {over}, {done}", flush=True)
        if not (folder / "config.toml").exists():  # killed before it had begun
            shutil.rmtree(folder, ignore_errors=True)
            cli(log, "train", path, "--out", folder)
        else:
            cli(log, "resume", folder)
        found = everything(folder)
        assert found["metrics"] == expected["metrics"]
        assert found["episodes"] == expected["episodes"]
        assert found["manifest"] == expected["manifest"]
        shutil.rmtree(folder)


def test_ctrl_c_saves_and_stops(tiny: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    config = config_of(
        {"a": lora(tiny)}, {"role0": "a"}, train={"num_steps": 500, "save_every": 500}
    )
    path, folder = write_config(tmp_path / "config.toml", config), tmp_path / "run"
    log = tmp_path / "log.txt"
    process = start(log, "-m", "pettingllms", "train", str(path), "--out", str(folder))
    request.addfinalizer(lambda: kill_all(process.pid))
    wait_for(lambda: (folder / "metrics.jsonl").exists() and metrics_of(folder), 300, "a step")
    ours = {process.pid, *descendants(process.pid)}
    heard = [one for one in listeners() if one.pid in ours]
    assert heard, "no port was found, so the look was in vain"
    assert [one for one in heard if not one.loopback] == []
    port = next(one.port for one in heard if one.process == "gcs_server")
    stranger = f"""
import os
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64, {REMOTE}="0")
import ray
ray.init(address="127.0.0.1:{port}")
"""
    said = run(tmp_path / "stranger.txt", "-c", stranger, seconds=120, code=1)
    assert "InvalidAuthToken" in said
    assert process.poll() is None, "the stranger ended the run"
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=120) == 0, log.read_text()[-3000:]
    assert "continues the run" in log.read_text()
    (saved,) = (folder / "checkpoints").iterdir()
    state = json.loads((saved / "manifest.json").read_text())["state"]
    assert state["step"] == len(metrics_of(folder)) >= 1
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ours), 30, "all to end")


def test_from_training_to_a_model_that_others_load(tiny: Path, tmp_path: Path) -> None:
    policies = {"a": lora(tiny), "b": {"kind": "full", "model": str(tiny), "lr": 1e-3}}
    config = config_of(
        policies,
        {"role0": "a", "role1": "b"},
        train={"num_steps": 2, "eval_every": 2},
        eval={"num_tasks": 4, "num_samples": 2},
        inference={"engine": "torch"},
        log={"tensorboard": True},
    )
    path, folder = write_config(tmp_path / "config.toml", config), tmp_path / "run"
    cli(tmp_path / "train.txt", "train", path, "--out", folder)
    assert metrics_of(folder)[-1]["roles/role0/eval_failed"] == 0
    assert list((folder / "tensorboard").iterdir())
    cli(tmp_path / "eval.txt", "eval", folder, "--out", tmp_path / "scores", "eval.num_samples=3")
    scores = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert set(scores["role0"]["pass_at"]) == {"1", "2", "3"}
    assert scores["role1"]["avg"]["low"] <= scores["role1"]["avg"]["value"]
    for policy in policies:
        cli(tmp_path / "export.txt", "export", folder, tmp_path / policy, "--policy", policy)
    script = f"""
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
ids = torch.arange(5, 25)[None]
base = AutoModelForCausalLM.from_pretrained({str(tiny)!r})
before = base(ids).logits
adapted = PeftModel.from_pretrained(base, {str(tmp_path / "a")!r})
assert not torch.equal(adapted(ids).logits, before)
whole = AutoModelForCausalLM.from_pretrained({str(tmp_path / "b")!r})
assert not torch.equal(whole(ids).logits, before)
assert AutoTokenizer.from_pretrained({str(tmp_path / "b")!r}).chat_template
"""
    run(tmp_path / "load.txt", "-c", script)
    exported = dict(config, policies={"b": {"kind": "frozen", "model": str(tmp_path / "b")}})
    exported |= {"roles": {"role0": "b", "role1": "b"}, "eval": {"num_tasks": 2}}
    exported["inference"] = {**config["inference"], "engine": "vllm"}
    plain = write_config(tmp_path / "exported.toml", exported)
    assert '"num_tasks": 2' in cli(tmp_path / "eval2.txt", "eval", plain, "--json")


@pytest.mark.slow
def test_rewards_go_up(tiny: Path, tmp_path: Path) -> None:
    """A tiny model learns within five minutes to answer in digits; seed 7."""
    config = config_of(
        {"a": {"kind": "full", "model": str(tiny), "lr": 3e-3}},
        {"role0": "a"},
        rollout={"num_tasks": 8, "num_samples": 16, "max_reply_tokens": 8},
        inference={"max_num_seqs": 128},
        train={"num_steps": 40, "save_every": 40},
    )
    path, folder = write_config(tmp_path / "config.toml", config), tmp_path / "run"
    began = time.monotonic()
    cli(tmp_path / "train.txt", "train", path, "--out", folder)
    rewards = [line["roles/role0/reward"] for line in metrics_of(folder)]
    first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
    print(f"reward {first:.3f} -> {last:.3f} in {time.monotonic() - began:.0f} s", flush=True)
    assert last > first + 0.3
