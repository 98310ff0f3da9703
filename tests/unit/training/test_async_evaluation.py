"""Evaluation of a step beside the next one, over fake engines and learners."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import fakes
from fakes import FakeEngines, FakeLearners, FakeRun, legal_cell, train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import SamplerError
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.trackers import METRICS_FILE, metric_rows
from pettingllms.types import Sample, SampleRequest

NUM_STEPS = 4
EVAL_TEMPERATURE = 0.25
"""By which a request of an evaluation is known."""
events: list[str] = []


def config_of(max_staleness: int) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "lora", "model": "m"}},
            "train": {"num_steps": NUM_STEPS, "save_every": 1, "eval_every": 1},
            "eval": {"num_tasks": 3, "temperature": EVAL_TEMPERATURE},
            "guard": {"action": "off"},
            "rollout": {"num_tasks": 4, "num_samples": 2, "max_staleness": max_staleness},
        }
    )


class Noting(FakeEngines):
    """Notes the version that answers each request of an evaluation, which takes long."""

    waits_for_learning = False
    """Whether no request is answered before the learner trains on the next step."""

    async def sample(self, request: SampleRequest) -> list[Sample]:
        if request.temperature != EVAL_TEMPERATURE:
            return await super().sample(request)
        before = self.at["p"]
        for _ in range(20):
            await asyncio.sleep(0)
        if self.waits_for_learning and before < NUM_STEPS:
            async with asyncio.timeout(10):
                while f"learning {before + 1}" not in events:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        samples = await super().sample(request)
        assert samples[0].policy_version == before == self.at["p"]
        events.append(f"evaluated {before}")
        return samples

    async def publish(self, policy: str, new: Any) -> None:
        await super().publish(policy, new)
        events.append(f"published {new.version}")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    call = FakeLearners.call

    async def noting(self: Any, method: str, policy: str = "", *args: Any) -> Any:
        if method == "train":
            events.append(f"learning {args[1]}")
        return await call(self, method, policy, *args)

    monkeypatch.setattr(fakes, "FakeEngines", Noting)
    monkeypatch.setattr(FakeLearners, "call", noting)
    events.clear()
    yield events
    events.clear()


def rows(folder: Path) -> dict[int, dict[str, Any]]:
    lines = (folder / METRICS_FILE).read_text().splitlines()
    return {row["step"]: row for row in metric_rows(lines)}


def check_rows(folder: Path) -> None:
    found = rows(folder)
    assert sorted(found) == list(range(1, NUM_STEPS + 1))
    for row in found.values():
        assert {"roles/player_x/eval_success", "roles/player_x/reward", "time/step"} <= set(row)


def test_the_next_step_learns_while_an_evaluation_runs(
    tmp_path: Path, noted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noting, "waits_for_learning", True)
    run = train_with_fakes(config_of(1), tmp_path / "run", legal_cell)
    check_rows(tmp_path / "run")
    said = [text for text in run.watched.said if "test success player_x" in text]
    assert [text.split(":")[0] for text in said] == [
        f"evaluation of step {step}" for step in range(1, NUM_STEPS + 1)
    ], "callbacks get no metrics of an evaluation that ends after its step"
    where = {event: at for at, event in enumerate(noted)}  # the last one of each
    for step in range(1, NUM_STEPS):
        learned, evaluated = where[f"learning {step + 1}"], where[f"evaluated {step}"]
        assert learned < evaluated < where[f"published {step + 1}"]
    assert f"evaluated {NUM_STEPS}" in where, "the last evaluation ends before the run"


def test_a_synchronous_run_evaluates_before_the_next_step(tmp_path: Path, noted: list[str]) -> None:
    train_with_fakes(config_of(0), tmp_path / "run", legal_cell)
    check_rows(tmp_path / "run")
    where = {event: at for at, event in enumerate(noted)}
    for step in range(1, NUM_STEPS):
        assert where[f"evaluated {step}"] < where[f"learning {step + 1}"]


@pytest.mark.parametrize("dies_after", [1, 3, NUM_STEPS])
def test_a_resumed_run_repeats_an_evaluation_that_was_cut_off(
    tmp_path: Path, noted: list[str], dies_after: int
) -> None:
    folder = tmp_path / "run"
    train_with_fakes(config_of(1), folder, legal_cell, dies_after=dies_after)
    # It died before it began to save the step; a kill after that keeps the checkpoint.
    saved = RunFolder(folder).open(lambda _: None)
    assert (saved[0].step if saved else 0) == dies_after - 1
    train_with_fakes(config_of(1), folder, legal_cell)
    check_rows(folder)
    assert {f"evaluated {n}" for n in range(1, NUM_STEPS + 1)} <= set(noted)


def test_a_run_that_became_synchronous_repeats_the_evaluation_first(
    tmp_path: Path, noted: list[str]
) -> None:
    """Its engines may sleep while learners learn."""
    folder = tmp_path / "run"
    train_with_fakes(config_of(1), folder, legal_cell, dies_after=3)
    noted.clear()
    RunFolder(folder).write_config(config_of(0))
    train_with_fakes(config_of(0), folder, legal_cell)
    check_rows(folder)
    last = max(at for at, event in enumerate(noted) if event == "evaluated 2")
    assert last < noted.index("learning 3")


def test_a_checkpoint_names_the_evaluation_in_progress(tmp_path: Path, noted: list[str]) -> None:
    folder = tmp_path / "run"

    class Stuck(Noting):
        """Evaluations never end, and the next step fails."""

        async def sample(self, request: SampleRequest) -> list[Sample]:
            if self.at["p"] == 2 and request.temperature == EVAL_TEMPERATURE:
                await asyncio.sleep(3600)
            return await super().sample(request)

    call = FakeLearners.call

    async def failing(self: Any, method: str, policy: str = "", *args: Any) -> Any:
        if method == "train" and args[1] == 3:
            raise SamplerError("the third step fails")
        return await call(self, method, policy, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEngines", Stuck)
        patch.setattr(FakeLearners, "call", failing)
        with pytest.raises(SamplerError, match="third step"):
            train_with_fakes(config_of(1), folder, legal_cell)
    state, _ = RunFolder(folder).open(lambda _: None) or (None, None)
    assert state is not None
    assert (state.step, state.components["evaluation"]) == (2, {"pending": 2})
    assert "roles/player_x/eval_success" not in rows(folder)[2]
    noted.clear()
    train_with_fakes(config_of(1), folder, legal_cell)
    check_rows(folder)
    where = {event: at for at, event in reversed([*enumerate(noted)])}
    assert where["evaluated 2"] < where["published 3"], "with the weights of its step"


@pytest.mark.parametrize("ahead", [0, 1])
def test_an_evaluation_with_replies_of_the_next_weights_is_reported(
    tmp_path: Path, ahead: int
) -> None:
    """An engine that is restarted while its learner trains gets the learner's newest weights."""

    class Restarted(FakeEngines):
        async def sample(self, request: SampleRequest) -> list[Sample]:
            samples = await super().sample(request)
            if request.temperature != EVAL_TEMPERATURE or self.at["p"] != 2:
                return samples
            return [replace(one, policy_version=self.at["p"] + ahead) for one in samples]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEngines", Restarted)
        run = train_with_fakes(config_of(1), tmp_path / "run", legal_cell)
    said = [text for text in run.watched.said if "weights of the next step" in text]
    assert len(said) == ahead


def test_a_failed_evaluation_ends_the_run(tmp_path: Path) -> None:
    async def failing(*_: Any, **__: Any) -> FakeRun:
        raise SamplerError("no evaluation")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pettingllms.training.periodic_eval.evaluate_team", failing)
        with pytest.raises(SamplerError, match="no evaluation"):
            train_with_fakes(config_of(1), tmp_path / "run", legal_cell)


def test_metrics_of_one_step_in_two_lines_are_one_row() -> None:
    lines = [json.dumps({"step": step, "a": value}) for step, value in ((1, 1), (1, 2), (2, 3))]
    assert metric_rows(lines) == [{"step": 1, "a": 2}, {"step": 2, "a": 3}]
