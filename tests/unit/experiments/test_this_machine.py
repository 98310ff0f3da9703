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

from pettingllms.errors import CheckpointError
from pettingllms.experiments.plan import PlannedArm, make_plan
from pettingllms.experiments.results import Result, read_metrics, training_cost
from pettingllms.experiments.runner import ThisMachine
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
    """The number of batches that a policy was trained on."""
    return str(weights)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("pettingllms.cluster.inference_team.ray_running", nullcontext)
    with faked(FakeRun(Watched()), by_weights):
        yield


@pytest.fixture
def arm(tmp_path: Path) -> PlannedArm:
    """A league of three steps, with a column in which its exploiter has a player."""
    text = EXPERIMENT.replace('["eval.num_tasks=8"]', '["eval.num_tasks=2", "roles.b=hunter"]')
    found = make_plan(Lab(tmp_path, text, LEAGUE).request(), 1).arms[1]
    train_with_fakes(found.config, found.folder, by_weights)
    training = training_cost(read_metrics(found.folder))
    Result("GRPO", 1, "", {}, {}, training).write(found.folder)
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


@pytest.mark.usefixtures("engines")
def test_an_older_checkpoint_is_not_evaluated_as_the_trained_policy(arm: PlannedArm) -> None:
    run, cell, said = RunFolder(arm.folder), arm.evaluations[0], list[str]()
    last = arm.folder / "checkpoints" / "step-000003" / "policies" / "policy_a" / "weights"
    last.write_bytes(b"cut")
    with pytest.raises(CheckpointError, match=r"until step 3, .* of step 2; delete .*result.json"):
        ThisMachine().evaluate(cell.config, run, cell.out, said.append)
    assert "skipped a checkpoint" in said[0]
    (arm.folder / "result.json").unlink()
    train_with_fakes(arm.config, arm.folder, by_weights)
    assert run.newest(pytest.fail)[0].step == 3, "as the message has it"
