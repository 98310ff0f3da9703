"""A real server on loopback that is slow, refuses, and talks nonsense, in the loop as it is: no
episode is lost, none waits for another's verdict, and the key is nowhere."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")

from fakes import FakeRun, train_with_fakes
from judges import shown
from servers import serving

from pettingllms.config import RunConfig, parse_config
from pettingllms.runtime import http_client as keyed_client
from pettingllms.types import Failed, Scored, read_episodes

KEY, CANARY = "PETTINGLLMS_TEST_JUDGE_KEY", "sk-canary-7f3b19d2c4"
NUM_EPISODES = 6


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, CANARY)
    monkeypatch.setattr(keyed_client, "FIRST_WAIT", 0.01)


def config_at(url: str, against: str = "group", steps: int = 1, **judge: Any) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "story-v1", "num_rounds": 1},
            "algo": {"type": "grpo"},
            "policies": {
                "p": {"kind": "full", "model": "m"},
                "judge": {"kind": "api", "url": url, "model": "judge", "key": KEY},
            },
            "roles": {"writer_1": "p", "writer_2": "p"},
            "judge": {
                "by": "api",
                "against": against,
                "held_out": "rule",
                "judges": {"api": {"kind": "llm", "policy": "judge", "seconds": 2.0, **judge}},
            },
            "rollout": {"num_tasks": 2, "num_samples": 3},
            "train": {"num_steps": steps, "save_every": 1},
        }
    )


def notify(request: Any, number: int, weights: int) -> str:
    """Stories that differ by their samples; a longer one is better, says the judge."""
    words = " ".join(["long"] * (1 + request.seed % 5 + number))
    return f"<answer>A {words} way led to the harbour.</answer>"


def longer(body: dict[str, Any]) -> str:
    first, second = (len(text) for text in shown(body["messages"][1]["content"]))
    winner = "tie" if first == second else "A" if first > second else "B"
    return json.dumps({"winner": winner})


def rewards_of(folder: Path, step: int = 1) -> list[Any]:
    (file,) = sorted(folder.rglob(f"*{step:06d}*.zip"))
    episodes = list(read_episodes(file))
    return [episode.steps[-1].rewards.team for episode in episodes]


def trained(folder: Path, answer: Any, **options: Any) -> tuple[FakeRun, list[Any]]:
    with serving(answer) as server:
        run = train_with_fakes(config_at(server.url, **options), folder, notify)
        assert set(server.auth) <= {f"Bearer {CANARY}"}
    return run, rewards_of(folder)


def test_a_server_in_order_judges_every_episode(tmp_path: Path) -> None:
    run, rewards = trained(tmp_path / "run", longer)
    assert len(rewards) == NUM_EPISODES
    assert all(isinstance(reward, Scored) for reward in rewards)
    metrics = run.watched.metrics[1]["judge"]
    assert metrics["failed_share"] == 0
    assert metrics["api_first_place_share"] == pytest.approx(0.5)
    assert "held_out_gap" in metrics


def test_a_server_that_refuses_talks_nonsense_and_is_slow_loses_no_episode(tmp_path: Path) -> None:
    number = itertools.count()

    def moody(body: dict[str, Any]) -> Any:
        match next(number) % 7:
            case 0:
                return 429, {"error": "too fast"}
            case 1:
                return 200, "<html>not JSON</html>"
            case 2:
                return 200, {"choices": []}
            case 3:
                return "I think that A is better."
            case 4:
                return 503, {"error": f"you sent {body}"}
            case 5:
                time.sleep(0.2)
        return longer(body)

    run, rewards = trained(tmp_path / "run", moody, num_tries=6)
    assert len(rewards) == NUM_EPISODES
    assert all(isinstance(reward, Scored) for reward in rewards)
    assert run.trained == [(1, "p")]


def test_a_server_without_verdicts_gives_no_reward_and_stops_nothing(tmp_path: Path) -> None:
    run, rewards = trained(tmp_path / "run", lambda _: "A wins!", num_tries=2, steps=2)
    assert len(rewards) == NUM_EPISODES
    assert all(isinstance(reward, Failed) and reward.owner == "judge" for reward in rewards)
    assert run.trained == []
    assert any("100% of verdicts failed" in text for text in run.watched.said)
    assert set(run.watched.metrics) == {1, 2}


def test_a_verdict_that_never_comes_holds_up_no_other(tmp_path: Path) -> None:
    asked = itertools.count()

    def first_hangs(body: dict[str, Any]) -> str:
        if next(asked) == 0:
            time.sleep(8)
        return longer(body)

    run, rewards = trained(tmp_path / "run", first_hangs, num_tries=1, seconds=4.0)
    assert len(rewards) == NUM_EPISODES
    assert all(isinstance(reward, Scored) for reward in rewards)
    assert run.watched.metrics[1]["time"]["judging"] < 8


def test_the_key_is_in_no_file_no_message_and_no_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def telltale(body: dict[str, Any]) -> Any:
        return 500, {"error": f"Authorization was Bearer {CANARY}"}

    run, rewards = trained(tmp_path / "run", telltale, num_tries=1, seconds=30.0)
    assert all(isinstance(reward, Failed) for reward in rewards)
    assert all("[key]" in reward.reason for reward in rewards)
    printed = capfd.readouterr()
    told = [*run.watched.said, printed.out, printed.err, repr(rewards)]
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    told += [path.read_bytes().decode("utf-8", errors="replace") for path in files]
    assert len(told) > 8
    assert not any(CANARY in text for text in told)
