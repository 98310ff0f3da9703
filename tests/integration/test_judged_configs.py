"""Configs whose rewards come from an LLM judge on an API, with a scripted server in its place."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("peft")

from scripted_server import scripted_server
from twins import make_qwen3, train_twin, twin_of

from pettingllms.runs.folder import RunFolder

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return make_qwen3(folder / "qwen3", [twin_of(CONFIGS / "story_gpt_judge.toml", folder, {})])


def verdict(messages: list[dict[str, Any]]) -> str:
    """Consistency is worth 9, and creativity 1 for each sentence that is not empty."""
    criteria, shown = (message["content"] for message in messages)
    if "consistency alone" in criteria:
        return json.dumps({"score": 9})
    assert "creativity alone" in criteria
    return json.dumps({"score": min(8, shown.count("bear") + shown.count("walked"))})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["story_gpt_judge", "story_ppo_judged"])
def test_two_steps_on_the_rewards_of_two_llm_judges(
    name: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    asked: list[str] = []

    def reply(messages: list[dict[str, Any]]) -> str:
        asked.append(messages[0]["content"])
        return verdict(messages)

    with scripted_server(reply) as url:
        sizes = ["env.num_rounds=1", f"policies.judge.url={url}"]
        config = twin_of(CONFIGS / f"{name}.toml", model, {}, *sizes)
        watched, _ = train_twin(config, RunFolder(tmp_path / "run"))
    assert {"creativity alone" in text for text in asked} == {True, False}
    assert not [text for text in watched.said if "ALARM" in text]
    for step, metrics in watched.metrics.items():
        judged = metrics["judge"]
        assert judged["failed_share"] == 0
        assert 0.45 <= judged["score"] <= 0.9
        assert set(metrics["policies"]) >= {"first", "second"}
        for policy in ("first", "second"):
            found = metrics["policies"][policy]
            assert found["updates"] == step
            assert math.isfinite(found["loss"])
            assert found["grad_norm"] > 0
            assert found["mean_abs_advantage"] > 0
            assert ("value_loss" in found) == (config.algo.type == "ppo")
            assert math.isfinite(found.get("value_loss", 0.0))
        reward = metrics["roles"]["writer_1"]["reward_team"]
        assert reward == pytest.approx(judged["score"], abs=1e-6)
