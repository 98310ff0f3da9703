"""Trajectories of ATIF: their content here, and the schema package in its own environment."""

import os
import subprocess
from pathlib import Path

import pytest
from toys import AnsweringSampler
from typer.testing import CliRunner

from pettingllms.algos.credit import role_reward
from pettingllms.cli.main import app
from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import make_env
from pettingllms.exchange.atif import trajectory
from pettingllms.exchange.inspect_log import RunFacts
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import Episode, Failed, Scored, write_episodes

CHECK = """
import json, sys
from pathlib import Path
from atif import Trajectory
files = sorted(Path(sys.argv[1]).rglob("*.json"))
for file in files:
    data = json.loads(file.read_text())
    assert Trajectory.model_validate(data).to_json_dict() == data, file
print(len(files))
"""


def episodes_of(name: str) -> list[Episode]:
    import asyncio

    env = make_env(name)
    sampler = AnsweringSampler(lambda request, number: f"<answer>{request.seed % 9 + 1}</answer>")
    players = {role: Player("p", sampler, ByteRenderer()) for role in env.roles}
    found: list[Episode] = []
    config = RolloutConfig(type="linear", num_samples=2)
    worker = Worker(env, players, config, RewardConfig())
    asyncio.run(worker.run(env.tasks("test")[:2], 3, found.append))
    return found


def test_steps_are_the_turns_of_all_roles() -> None:
    for episode in episodes_of("tic_tac_toe-v1"):
        data = trajectory(episode, RunFacts("run", models={"p": "a/b"}))
        replies = [step for step in data["steps"] if "metrics" in step]
        turns = episode.main_turns()
        assert [step["message"] for step in replies] == [turn.text for turn in turns]
        assert [step["extra"]["role"] for step in replies] == [turn.role for turn in turns]
        for step, turn in zip(replies, turns, strict=True):
            assert step["metrics"]["completion_token_ids"] == turn.response_ids.tolist()
            assert len(step["metrics"]["logprobs"]) == turn.num_tokens
            assert step["model_name"] == "a/b"
        for role in episode.success:
            reward = role_reward(episode, role, RewardConfig())
            assert isinstance(reward, Scored)
            assert data["extra"]["rewards"][role] == reward.value


def test_a_failed_episode_has_its_reason_and_no_reward() -> None:
    (episode, *_) = episodes_of("kuhn_poker-v1")
    episode.failure = Failed("the server left", "sampler")
    extra = trajectory(episode, RunFacts("run"))["extra"]
    assert extra["failure"] == "sampler: the server left"
    assert extra["rewards"] == {}


@pytest.mark.skipif(
    "PETTINGLLMS_ATIF" not in os.environ,
    reason="set PETTINGLLMS_ATIF to a virtual environment with atif",
)
def test_the_schema_package_accepts_every_document(tmp_path: Path) -> None:
    folder, count = tmp_path / "run" / "episodes", 0
    folder.mkdir(parents=True)
    for step, name in enumerate(("tic_tac_toe-v1", "iterated_dilemma-v1", "visual_relay-v1")):
        episodes = episodes_of(name)
        count += len(episodes)
        write_episodes(folder / f"step-{step:06d}-000.zip", episodes)
    words = ["export", str(folder.parent), str(tmp_path / "out"), "--format", "atif"]
    assert CliRunner().invoke(app, words).exit_code == 0
    done = subprocess.run(
        [f"{os.environ['PETTINGLLMS_ATIF']}/bin/python", "-c", CHECK, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(count), done.stderr[-2000:]
