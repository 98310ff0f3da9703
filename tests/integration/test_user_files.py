"""Extensions from one user file each, without editing the package: each trains two steps under Ray
on the tiny model."""

from pathlib import Path
from typing import Any

import pytest
from running import config_of, metrics_of, run, write_config

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")

ENVIRONMENT = '''
from dataclasses import dataclass, replace

import pettingllms as pl


@dataclass(frozen=True)
class State:
    number: int
    reply: str = ""


class Echo(pl.Environment):
    """Repeat a digit."""

    id = "echo-v1"
    roles = ("role0", "role1")

    def tasks(self, split):
        return [pl.Task(f"{split}-{n}", {"number": n % 10}) for n in range(20)]

    def reset(self, task, seed):
        return State(task.data["number"])

    def acting(self, state):
        return () if state.reply else self.roles

    def observe(self, state, role):
        return [pl.user(f"Repeat {state.number}")]

    def step(self, state, replies):
        rewards = {r: pl.Scored(float(str(state.number) in text)) for r, text in replies.items()}
        metrics = {"digits": float(sum(c.isdigit() for c in "".join(replies.values())))}
        return pl.StepResult(replace(state, reply="done"), pl.Rewards(agent=rewards), metrics)

    def success(self, state, role):
        return False
'''
ALGORITHM = """
import pettingllms as pl


class Halves(pl.Algorithm):
    def groups(self, episodes):
        return self.group_episodes(episodes, lambda episode, role: (*pl.task_key(episode), role))

    def advantages(self, group):
        return [0.5 if at % 2 else -0.5 for at in range(len(group.members))]
"""
LOSS = '''
from pettingllms import Loss, LossConfig


class Config(LossConfig):
    scale: float = 1.0
    """Factor of the objective."""


class ScaledLoss(Loss):
    Config = Config
    needs = frozenset({"entropy", "reference_logprobs"})

    def objective(self, inputs):
        assert inputs.entropy_BT is not None and inputs.ref_logp_BT is not None
        objective_BT = self.config.scale * inputs.token_advantages() * inputs.logp_BT
        return objective_BT, {"certainty": inputs.logp_BT.exp()}
'''
JUDGE = """
import pettingllms as pl


class LengthJudge(pl.Judge):
    async def score(self, submission):
        self.note("length", float(len(submission.answer)))
        return pl.Scored(min(1.0, len(submission.answer) / 100))
"""
ENGINE = '''
from dataclasses import replace

from pettingllms.inference.engines.torch import TorchEngine


class QueuedEngine(TorchEngine):
    """Answers requests one by one."""

    capabilities = replace(TorchEngine.capabilities, lockstep=False)
'''
CALLBACK = """
from pathlib import Path

import pettingllms as pl


class Steps(pl.Callback):
    def on_step_end(self, step, metrics):
        with Path(__file__).with_name("steps.txt").open("a") as file:
            file.write(f"{step} {sorted(metrics['roles'])}\\n")
"""
TRACKER = """
import json

import pettingllms as pl


class Lines(pl.Tracker):
    def __init__(self, config, folder):
        self.path = folder / "tracked.txt"

    def log(self, step, values):
        with self.path.open("a") as file:
            file.write(json.dumps([step, values["rollout/num_episodes"]]) + "\\n")
"""
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "environment": (ENVIRONMENT, {"env": {"id": "environment.py:Echo"}, "algo": {"type": "grpo"}}),
    "algorithm": (ALGORITHM, {"algo": {"type": "algorithm.py:Halves"}}),
    "loss": (LOSS, {"loss": {"type": "loss.py:ScaledLoss", "scale": 2.0}}),
    "judge": (
        JUDGE,
        {
            "env": {"id": "story-v1", "terse": True, "num_rounds": 1},
            "algo": {"type": "grpo"},
            "roles": {"writer_1": "p", "writer_2": "p"},
            "judge": {"by": "length", "judges": {"length": {"kind": "judge.py:LengthJudge"}}},
        },
    ),
    "engine": (ENGINE, {"inference": {"engine": "engine.py:QueuedEngine"}}),
    "callback": (CALLBACK, {"log": {"callbacks": ["callback.py:Steps"]}}),
    "tracker": (TRACKER, {"log": {"trackers": ["tracker.py:Lines"]}}),
}
"""By kind: the user's file, and the sections that name it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two steps for each file."""
    from pettingllms.models import make_tiny

    folder = tmp_path_factory.mktemp("user_files")
    texts = [f"You are role{n % 2}. Count on from {n}: role0 says {n}" for n in range(200)]
    model = str(make_tiny(folder / "tiny", texts=texts, hidden_size=64, vocab_size=320))
    policy = {"kind": "lora", "model": model, "rank": 4, "lr": 1e-3}
    for name, (code, sections) in FILES.items():
        (folder / f"{name}.py").write_text(code)
        config = config_of(
            {"p": policy},
            {"role0": "p", "role1": "p"},
            inference={"engine": "torch"},
            train={"num_steps": 2},
        )
        config["cluster"] = {"device": "cpu"}
        config["inference"]["max_model_len"] = 1024
        for section, values in sections.items():
            is_whole = section in ("env", "algo", "roles")
            config[section] = values if is_whole else {**config.get(section, {}), **values}
        write_config(folder / f"{name}.toml", config)
    driver = Path(__file__).with_name("drive_user_files.py")
    run(folder / "log.txt", str(driver), str(folder), seconds=600)
    return folder


def test_a_user_environment_trains(folder: Path) -> None:
    lines = metrics_of(folder / "environment")
    assert len(lines) == 2
    assert all("roles/role1/reward" in line for line in lines)


def test_a_user_algorithm_trains(folder: Path) -> None:
    lines = metrics_of(folder / "algorithm")
    assert [line["policies/p/mean_abs_advantage"] for line in lines] == [0.5, 0.5]


def test_a_user_loss_trains(folder: Path) -> None:
    lines = metrics_of(folder / "loss")
    assert len(lines) == 2
    assert all(0 < line["policies/p/certainty"] < 1 for line in lines)


def test_a_user_judge_gives_rewards(folder: Path) -> None:
    lines = metrics_of(folder / "judge")
    assert len(lines) == 2
    assert all(line["judge/num_verdicts"] > 0 == line["judge/failed_share"] for line in lines)
    assert all("judge/length_length" in line for line in lines)


def test_a_user_engine_samples(folder: Path) -> None:
    lines = metrics_of(folder / "engine")
    assert len(lines) == 2
    assert all(line["policies/p/mismatch"] < 1e-3 for line in lines)


def test_a_user_callback_is_notified(folder: Path) -> None:
    steps = (folder / "steps.txt").read_text().splitlines()
    assert steps == ["1 ['role0', 'role1']", "2 ['role0', 'role1']"]


def test_a_user_tracker_logs(folder: Path) -> None:
    lines = (folder / "tracker" / "tracked.txt").read_text().splitlines()
    assert lines == ["[1, 6.0]", "[2, 6.0]"]
