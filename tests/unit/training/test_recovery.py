"""A learner that is lost starts again, and the run is what it would have been without that."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("openskill")

import fakes
from fakes import FakeLearners, FakeRun, legal_cell, train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import ClusterError, EpisodesLostError, LearnerLostError
from pettingllms.runs.checkpoint import State, checkpoints, load_checkpoint
from pettingllms.training.train import Trainer
from pettingllms.types.episode_files import episode_files, step_of

Call = tuple[int, str, str]


class Mortal(FakeLearners):
    """Learners of which a rank dies at given calls: updates before, method and policy."""

    dies_at: list[Call] = []
    num_started = 0

    def __init__(self, policies: Any) -> None:
        super().__init__(policies)
        self._policies = policies
        self.actors, self.has_lost_rank = ["rank 0"], False
        Mortal.num_started += 1

    async def stop(self) -> None:
        self.actors = []

    async def restart(self) -> None:
        assert not self.actors
        self.__init__(self._policies)  # type: ignore[misc]

    async def files(self, policy: str) -> Any:
        self._die("files", policy)
        return await super().files(policy)

    async def save(self, policy: str, folder: Path, background: bool) -> None:
        self._die("save", policy)
        await super().save(policy, folder, background)

    async def saved(self, policy: str) -> dict[str, str]:
        self._die("saved", policy)
        return await super().saved(policy)

    async def call(self, method: str, policy: str = "", *args: Any) -> Any:
        if isinstance(policy, str) and policy:
            self._die(method, policy)
        return await super().call(method, policy, *args)

    def _die(self, method: str, policy: str) -> None:
        if (call := (self.weights[policy], method, policy)) in self.dies_at:
            self.dies_at.remove(call)
            self.has_lost_rank = True
        if self.has_lost_rank:
            raise LearnerLostError(f"rank 0 of the learner of '{policy}' died in '{method}'")


@pytest.fixture(autouse=True)
def mortal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "FakeLearners", Mortal)
    monkeypatch.setattr(Mortal, "dies_at", [])
    monkeypatch.setattr(Mortal, "num_started", 0)


KINDS: dict[str, dict[str, Any]] = {
    "two models": {
        "policies": {"p": {"kind": "full", "model": "m"}, "q": {"kind": "full", "model": "n"}},
        "roles": {"player_x": "p", "player_o": "q"},
    },
    "two adapters": {
        "policies": {"p": {"kind": "lora", "model": "m"}, "q": {"kind": "lora", "model": "m"}},
        "roles": {"player_x": "p", "player_o": "q"},
    },
    "league": {
        "policies": {"p": {"kind": "lora", "model": "m"}},
        "league": {"snapshot_every": 2, "rule": "uniform", "share": 0.5, "anchors": ["random"]},
        "inference": {"engine": "torch"},
    },
}


def config_of(kind: str, save_every: int = 1, **sections: Any) -> RunConfig:
    rollout = {"num_tasks": 4, "num_samples": 1, **sections.pop("rollout", {})}
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "rae"},
            "train": {"num_steps": 6, "save_every": save_every, "keep_checkpoints": 9},
            "seed": 3,
            "rollout": rollout,
            **KINDS[kind],
            **sections,
        }
    )


def state_of(folder: Path) -> State:
    return load_checkpoint(next(checkpoints(folder / "checkpoints")))[0]


def left_behind(run: FakeRun, folder: Path) -> Any:
    """What a run measured, saved and learned, without the number of its publications."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    measured = [
        {
            k: v
            for k, v in line.items()
            if not re.match(r"(time|idle)/|.*/(version|tokens_per_second)$", k)
        }
        for line in lines
    ]
    state = state_of(folder)
    steps = sorted(step_of(file) or 0 for file in episode_files(folder))
    kept = {"step": state.step, "tasks": state.num_tasks_done, "tokens": state.num_tokens}
    pool = state.components.get("league", {}).get("pool", [])
    return measured, run.weights, kept, steps, state.weight_hashes, [one["step"] for one in pool]


@pytest.mark.parametrize("method", ["train", "logprobs", "files", "save", "saved"])
@pytest.mark.parametrize("save_every", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_lost_a_learner_equals_one_that_did_not(
    kind: str, save_every: int, method: str, tmp_path: Path
) -> None:
    config = config_of(kind, save_every)
    undisturbed = train_with_fakes(config, tmp_path / "whole", legal_cell)
    whole = left_behind(undisturbed, tmp_path / "whole")
    num_learners = Mortal.num_started
    num = 4 if save_every == 4 and method.startswith("save") else 2
    Mortal.dies_at = [(num, method, "p")]
    run = train_with_fakes(config, tmp_path / "lost", legal_cell)
    assert Mortal.dies_at == [], "no rank died"
    assert left_behind(run, tmp_path / "lost") == whole
    said = [text for text in run.watched.said if "died" in text]
    assert len(said) == 1
    # A save in the background may be noticed by the next call first.
    noticed = rf"({method}|train)" if method == "saved" else method
    assert re.search(rf"rank 0 of the learner of 'p' died in '{noticed}'", said[0])
    assert "the learner was restarted in" in said[0]
    is_first = save_every == 4 and num == 2
    restarted = num_learners if is_first or num == save_every else 1
    assert Mortal.num_started == 2 * num_learners + restarted


@pytest.mark.parametrize("save_every", [1, 4])
def test_a_run_that_lost_episodes_equals_one_that_did_not(
    save_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver reads content that was on a lost machine."""
    config = config_of("two models", save_every)
    whole = left_behind(
        train_with_fakes(config, tmp_path / "whole", legal_cell), tmp_path / "whole"
    )
    credit, left = Trainer.credit, [3]

    def lost_once(trainer: Trainer, step: Any) -> None:
        if step.number in left:
            left.remove(step.number)
            raise EpisodesLostError("episodes of this step were lost")
        credit(trainer, step)

    monkeypatch.setattr(Trainer, "credit", lost_once)
    run = train_with_fakes(config, tmp_path / "lost", legal_cell)
    assert left == []
    assert left_behind(run, tmp_path / "lost") == whole
    (said,) = (text for text in run.watched.said if "were lost" in text)
    assert "the learner was reset in" in said


def test_asynchronous_training_takes_up_the_tasks_that_were_under_way(tmp_path: Path) -> None:
    config = config_of("two adapters", rollout={"max_staleness": 1, "num_tasks": 2})
    Mortal.dies_at = [(2, "train", "q"), (4, "train", "p")]
    run = train_with_fakes(config, tmp_path / "run", legal_cell)
    assert Mortal.dies_at == []
    state = state_of(tmp_path / "run")
    assert (state.step, state.num_tasks_done) == (6, 12)
    assert run.weights == {"p": 6, "q": 6}
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]


def test_no_version_names_two_weights(tmp_path: Path) -> None:
    Mortal.dies_at = [(2, "train", "p")]
    train_with_fakes(config_of("two adapters"), tmp_path / "run", legal_cell)
    assert set(state_of(tmp_path / "run").versions.values()) == {7}


def test_a_learner_that_is_lost_again_and_again_ends_the_run(tmp_path: Path) -> None:
    Mortal.dies_at = [(2, "train", "p")] * 9
    config = config_of("two models", cluster={"max_restarts": 2})
    with pytest.raises(ClusterError, match=r"lost 3 times since .* step 2, .*max_restarts = 2"):
        train_with_fakes(config, tmp_path / "run", legal_cell)
    assert len(Mortal.dies_at) == 6


def test_restarts_count_since_the_last_checkpoint(tmp_path: Path) -> None:
    Mortal.dies_at = [(number, "train", "p") for number in range(5)]
    config = config_of("two models", cluster={"max_restarts": 1})
    run = train_with_fakes(config, tmp_path / "run", legal_cell)
    assert run.weights == {"p": 6, "q": 6}
    assert sum("restart 1 of 1" in text for text in run.watched.said) == 5


def test_a_checkpoint_that_was_not_completed_is_no_progress(tmp_path: Path) -> None:
    """The run went back to the checkpoint of step 1 both times."""
    Mortal.dies_at = [(2, "saved", "p"), (1, "train", "p")]
    config = config_of("two models", cluster={"max_restarts": 1})
    with pytest.raises(ClusterError, match=r"lost 2 times since the checkpoint of step 1,"):
        train_with_fakes(config, tmp_path / "run", legal_cell)
