"""Pairs and verifiers through the CLI: sampled, trained on Ray, measured, served on a port."""

import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest
from running import cli, config_of, kill_all, metrics_of, start, wait_for, write_config

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a configuration, and answers that were sampled with it."""
    from pettingllms.models import make_tiny

    root = tmp_path_factory.mktemp("offline")
    texts = [f"You are role0. Count on from {n}: role0 says {n}" for n in range(200)]
    model = str(make_tiny(root / "tiny", texts=texts, hidden_size=64, vocab_size=320))
    config = config_of(
        {"p": {"kind": "lora", "model": model, "rank": 4, "lr": 1e-2}},
        {"role0": "p"},
        eval={"num_tasks": 8, "num_samples": 4},
        dpo={"num_steps": 6, "num_pairs": 8},
        verifier={
            "num_tasks": 12,
            "num_samples": 8,
            "test_share": 0.3,
            "kind": "full",
            "num_steps": 40,
            "lr": 1e-3,
            "num_answers": 32,
        },
        inference={"engine": "torch"},
        cluster={"device": "cpu"},
    )
    write_config(root / "config.toml", config)
    return root


def test_a_policy_learns_from_pairs_of_what_it_said(root: Path) -> None:
    cli(root / "eval.log", "eval", root / "config.toml", "--out", root / "eval")
    episodes = root / "eval" / "episodes.jsonl"
    cli(root / "dpo.log", "dpo", root / "config.toml", episodes, "--out", root / "dpo")
    numbers = metrics_of(root / "dpo")
    losses = [step["policies/p/loss"] for step in numbers]
    assert losses[0] == pytest.approx(0.6931, abs=1e-3)
    assert losses[-1] < losses[0]
    begun = ["train.init_from=" + str(root / "dpo"), "train.num_steps=1"]
    cli(root / "train.log", "train", root / "config.toml", *begun, "--out", root / "train")


def test_a_verifier_from_sampling_to_a_port(root: Path) -> None:
    config, answers, verifier = root / "config.toml", root / "answers", root / "verifier"
    cli(root / "data.log", "verifier", "data", config, "--out", answers)
    for name in ("train.jsonl", "test.jsonl"):
        lines = (answers / name).read_text().splitlines()
        labels = [json.loads(line)["right"] for line in lines]
        assert labels
        assert sum(labels) * 2 == len(labels)
    cli(root / "learn.log", "verifier", "train", config, answers, "--out", verifier)
    cli(root / "measure.log", "verifier", "eval", verifier, answers / "train.jsonl")
    report = json.loads((verifier / "report.json").read_text())
    assert report["auc"] > 0.8
    assert (verifier / "calibration.png").read_bytes().startswith(b"\x89PNG")

    serving = start(root / "serve.log", "-m", "pettingllms", "verifier", "serve", str(verifier),
                    "--port", "0")  # fmt: skip
    try:
        said = wait_for(
            lambda: re.search(r"http://127\.0\.0\.1:\d+", (root / "serve.log").read_text()),
            120,
            "a port",
        )
        key = verifier / "key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        score = asked(said.group(), key.read_text())
        assert 0 <= score <= 1
        assert key.read_text() not in (root / "serve.log").read_text()
        os.kill(serving.pid, signal.SIGINT)
        serving.wait(30)
    finally:
        kill_all(serving.pid)


def asked(url: str, key: str) -> float:
    import asyncio

    from pettingllms.judges.verifier import VerifierClient
    from pettingllms.types import Scored, user

    async def ask() -> object:
        client = VerifierClient(url, "OFFLINE_TEST_KEY")
        try:
            return await client.score([user("Count on from 3:")], "4")
        finally:
            await client.close()

    os.environ["OFFLINE_TEST_KEY"] = key
    try:
        found = asyncio.run(ask())
    finally:
        del os.environ["OFFLINE_TEST_KEY"]
    assert isinstance(found, Scored)
    return found.value
