"""The real machine over fake engines: with whose weights an arm is evaluated."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("openskill")

from fakes import FakeRun, Watched, faked, train_with_fakes
from labs import EXPERIMENT, Lab
from pettingllms.experiments.machine import ThisMachine
from pettingllms.experiments.plan import PlannedArm, make_plan
from pettingllms.runs.folder import RunFolder
from pettingllms.types import SampleRequest, read_episodes

LEAGUE = """
[env]
id = "toys:Duel"
[algo]
type = "grpo"
[policies.policy_a]
kind = "lora"
model = "{start}"
[policies.hunter]
kind = "lora"
model = "{model}"
join_step = 2
[roles]
a = "policy_a"
b = "policy_a"
[league]
exploiters = ["hunter"]
[train]
save_every = 1
"""


def by_weights(request: SampleRequest, number: int, weights: int) -> str:
    """The number of batches that a policy has learnt from."""
    return str(weights)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("pettingllms.cluster.playing.ray_running", nullcontext)
    with faked(FakeRun(Watched()), by_weights):
        yield


@pytest.fixture
def arm(tmp_path: Path) -> PlannedArm:
    """A league of three steps, with a column in which its exploiter has a seat."""
    text = EXPERIMENT.replace('["eval.num_tasks=8"]', '["eval.num_tasks=2", "roles.b=hunter"]')
    found = make_plan(Lab(tmp_path, text, LEAGUE).order(), 1).arms[1]
    train_with_fakes(found.config, found.folder, by_weights)
    return found


def said_by(path: Path) -> set[tuple[str, str]]:
    return {(turn.policy, turn.text) for play in read_episodes(path) for turn in play.turns}


@pytest.mark.usefixtures("engines")
def test_a_league_is_evaluated_with_its_exploiter_or_without(arm: PlannedArm) -> None:
    plain, against = arm.evaluations
    for cell in (plain, against):
        ThisMachine().evaluate(cell.config, RunFolder(arm.folder), cell.out, pytest.fail)
    assert said_by(plain.out) == {("policy_a", "3")}
    assert said_by(against.out) == {("policy_a", "3"), ("hunter", "2")}
