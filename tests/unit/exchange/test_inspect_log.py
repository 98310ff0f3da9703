"""Logs of Inspect: their content here, and what Inspect itself reads in its own environment."""

import json
import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pettingllms.algos.credit import role_reward
from pettingllms.cli.main import app
from pettingllms.config import RewardConfig
from pettingllms.envs import make_env
from pettingllms.errors import ConfigError
from pettingllms.exchange.inspect_log import RunFacts, facts_of, inspect_log, write_inspect_logs
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.types import Episode, Failed, Scored, write_episodes

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
found = []
for info in list_eval_logs(sys.argv[1]):
    log = read_eval_log(info)
    header = read_eval_log(info, header_only=True)
    found.append({
        "task": log.eval.task, "status": header.status, "model": log.eval.model,
        "scores": {s.name: s.metrics["mean"].value for s in log.results.scores},
        "samples": [
            {"id": s.id, "epoch": s.epoch, "error": s.error.message if s.error else None,
             "limit": s.limit.reason if s.limit else None,
             "scores": {k: v.value for k, v in s.scores.items()},
             "replies": [e.output.completion for e in s.events if e.event == "model"],
             "roles": [e.role for e in s.events if e.event == "model"],
             "spans": sum(e.event == "span_begin" for e in s.events),
             "images": sum(type(c).__name__ == "ContentImage" for m in s.messages
                           if not isinstance(m.content, str) for c in m.content),
             "messages": len(s.messages)}
            for s in log.samples
        ],
    })
print(json.dumps(found))
"""


def episodes_of(name: str, num_tasks: int = 3) -> list[Episode]:
    """Episodes of random players, by the real rollout worker."""
    import asyncio

    from pettingllms.config import RolloutConfig
    from pettingllms.rollouts import Worker

    env = make_env(name)
    players = {role: scripted_player(env, "random", "p") for role in env.roles}
    found: list[Episode] = []
    config = RolloutConfig(type="linear", num_samples=2)
    worker = Worker(env, players, config, RewardConfig())
    asyncio.run(worker.run(env.tasks("test")[:num_tasks], 3, found.append))
    return found


def log_of(episodes: list[Episode]) -> dict[str, Any]:
    return inspect_log(episodes, RunFacts("run"), 4, TIME)


def test_samples_have_the_rewards_of_every_role() -> None:
    episodes = episodes_of("tic_tac_toe-v1")
    log = log_of(episodes)
    assert log["eval"]["task"] == "tic_tac_toe-v1 step 4"
    assert [sample["epoch"] for sample in log["samples"]].count(2) == 3
    for episode, sample in zip(episodes, log["samples"], strict=True):
        for role in ("player_x", "player_o"):
            reward = role_reward(episode, role, RewardConfig())
            assert isinstance(reward, Scored)
            assert sample["scores"][f"{role} reward"]["value"] == reward.value
            assert sample["scores"][f"{role} success"]["value"] == float(episode.success[role])


def test_a_failed_episode_is_a_sample_with_an_error() -> None:
    (episode, *_) = episodes_of("kuhn_poker-v1", 1)
    episode.failure = Failed("the server\nleft", "sampler")
    (sample,) = log_of([episode])["samples"]
    assert sample["error"]["message"] == "sampler: the server\nleft"
    assert all("reward" not in name for name in sample["scores"])


def test_ids_of_samples_events_and_messages_are_unique() -> None:
    log = log_of(episodes_of("iterated_dilemma-v1"))
    keys = [(sample["id"], sample["epoch"]) for sample in log["samples"]]
    assert len(set(keys)) == len(keys)
    for sample in log["samples"]:
        for ids in ([e["uuid"] for e in sample["events"]], [m["id"] for m in sample["messages"]]):
            assert len(set(ids)) == len(ids)


def test_the_config_of_a_run_names_models_and_weights(tmp_path: Path) -> None:
    text = '[reward]\nteam = 0.5\n[algo]\ntype = "no.such:Code"\n[policies.p]\nmodel = "a/b"\n'
    (tmp_path / "config.toml").write_text(text)
    facts = facts_of(tmp_path)
    assert (facts.reward.team, facts.algo, facts.models) == (0.5, "no.such:Code", {"p": "a/b"})
    (tmp_path / "config.toml").write_text("[reward]\nteam = 'x'\n")
    with pytest.raises(ConfigError, match="reward: "):
        facts_of(tmp_path)


def test_a_second_export_replaces_the_first(tmp_path: Path) -> None:
    write_episodes(tmp_path / "episodes.jsonl", episodes_of("tic_tac_toe-v1", 1))
    first = write_inspect_logs(tmp_path, tmp_path / "out")
    assert write_inspect_logs(tmp_path, tmp_path / "out") == first
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        return str(CliRunner().invoke(app, ["export", *words, "--format", "inspect"]).exception)

    assert "has no episodes" in run(str(tmp_path), str(tmp_path / "out"))
    assert "leave out --policy" in run(str(tmp_path), str(tmp_path / "out"), "--policy", "p")


@pytest.mark.skipif(
    "PETTINGLLMS_INSPECT" not in os.environ,
    reason="set PETTINGLLMS_INSPECT to a virtual environment with inspect_ai",
)
def test_inspect_reads_every_log_back(tmp_path: Path) -> None:
    folder, out = tmp_path / "run" / "episodes", tmp_path / "logs"
    folder.mkdir(parents=True)
    kept: dict[str, list[Episode]] = {}
    names = ("tic_tac_toe-v1", "iterated_dilemma-v1", "visual_relay-v1", "hanabi-v1")
    for step, name in enumerate(names, start=1):
        episodes = episodes_of(name, 2)
        kept[f"{name} step {step}"] = episodes
    tic = kept["tic_tac_toe-v1 step 1"]
    tic[0].failure = Failed("the server left", "sampler")
    assert tic[1].last is not None
    tic[1].steps[tic[1].last].limit = "rollout.max_steps = 3"
    odd = tic[2].turns[0]
    tic[2].turns[0] = replace(
        odd, text="\x00 \u2028 \U0001f600 </script> {{x}} \ud7ff", finish="length"
    )
    for step, episodes in enumerate(kept.values(), start=1):
        write_episodes(folder / f"step-{step:06d}-000.zip", episodes)
    result = CliRunner().invoke(
        app, ["export", str(folder.parent), str(out), "--format", "inspect"]
    )
    assert result.exit_code == 0, result.output
    done = subprocess.run(
        [f"{os.environ['PETTINGLLMS_INSPECT']}/bin/python", "-c", READ, str(out)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    read = {one["task"]: one for one in json.loads(done.stdout)}
    assert set(read) == set(kept)
    for task, episodes in kept.items():
        samples = read[task]["samples"]
        assert len(samples) == len(episodes)
        by_id = {(s["id"], s["epoch"]): s for s in samples}
        numbers: dict[str, int] = {}
        for episode in episodes:
            numbers[episode.task.id] = numbers.get(episode.task.id, 0) + 1
            sample = by_id[episode.task.id, numbers[episode.task.id]]
            turns = episode.main_turns()
            assert sample["replies"] == [turn.text for turn in turns]
            assert sample["roles"] == [turn.role for turn in turns]
            assert sample["spans"] == len(episode.main_branch())
            assert sample["images"] == sum(len(turn.images) for turn in turns)
            assert sample["messages"] == sum(len(turn.messages) + 1 for turn in turns)
            expected = {
                f"{role} reward": reward.value
                for role in episode.success
                if isinstance(reward := role_reward(episode, role, RewardConfig()), Scored)
            }
            assert {k: v for k, v in sample["scores"].items() if "reward" in k} == expected
    first = {s["error"] or s["limit"] for s in read["tic_tac_toe-v1 step 1"]["samples"]}
    assert first == {"sampler: the server left", "rollout.max_steps = 3", None}
    assert any(s["images"] for s in read["visual_relay-v1 step 3"]["samples"])
