"""Dynamic sampling: tasks that teach nothing are replaced, and still count everywhere else."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from plays import linear, rewards, siblings

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import FakeRun, train_with_fakes

from pettingllms.algos import make_algorithm
from pettingllms.config import EnvConfig, RunConfig, parse_config
from pettingllms.envs import Environment, Split, StepResult
from pettingllms.errors import ConfigError
from pettingllms.runs.callbacks import Callback
from pettingllms.training.component import TrainStep
from pettingllms.training.sampling import SamplingParts
from pettingllms.types import (
    Episode,
    Message,
    Rewards,
    SampleRequest,
    Scored,
    Task,
    read_episodes,
    user,
)

NUM_TASKS = 12


class Choice(Environment[str, EnvConfig]):
    """Two roles name a digit at once; the team's reward is their sum."""

    id = "choice-v1"

    @property
    def roles(self) -> tuple[str, ...]:
        return ("a", "b")

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{n}") for n in range(NUM_TASKS)]

    def reset(self, task: Task, seed: int) -> str:
        return ""

    def acting(self, state: str) -> tuple[str, ...]:
        return () if state else self.roles

    def observe(self, state: str, role: str) -> Sequence[Message]:
        return [user("name a digit")]

    def step(self, state: str, replies: Mapping[str, str]) -> StepResult[str]:
        return StepResult("over", Rewards(team=Scored(float(sum(map(int, replies.values()))))))

    def success(self, state: str, role: str) -> bool:
        return True


def config_of(**sections: Any) -> RunConfig:
    rollout = {"num_tasks": 3, "num_samples": 2, "max_resamples": 2}
    base = {
        "env": {"id": f"{__name__}:Choice"},
        "algo": {"type": "grpo"},
        "policies": {"p": {"kind": "lora", "model": "m"}},
        "train": {"num_steps": 4, "save_every": 1},
        "guard": {"action": "off"},
    }
    return parse_config({**base, **sections, "rollout": rollout | sections.get("rollout", {})})


class Replies:
    """Of every third task the replies differ; all others are flat."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __call__(self, request: SampleRequest, number: int, weights: int) -> str:
        if not differs(request.task_id) or request.role == "b":
            return "1"
        self._counts[request.task_id] += 1
        return str(self._counts[request.task_id] % 2)


def differs(task: str) -> bool:
    return int(task.partition("-")[2]) % 3 == 0


def tasks_of(folder: Path, step: int) -> list[str]:
    """Tasks of a step, in the order in which they were sampled."""
    found = read_episodes(folder / f"episodes/step-{step:06d}")
    return list(dict.fromkeys(episode.task.id for episode in found))


def test_flat_tasks_are_replaced_until_none_is_missing_or_rounds_end(tmp_path: Path) -> None:
    run = train_with_fakes(config_of(), tmp_path / "run", Replies())
    for step, metrics in run.watched.metrics.items():
        tasks = tasks_of(tmp_path / "run", step)
        expected = 3
        for _ in range(2):  # each round samples as many tasks as are missing
            expected += 3 - sum(map(differs, tasks[:expected]))
        assert len(tasks) == expected
        useful = sum(map(differs, tasks))
        assert metrics["rollout"]["num_tasks"] == len(tasks)
        assert metrics["rollout"]["flat_tasks"] == len(tasks) - useful
        assert metrics["rollout"]["num_episodes"] == 2 * len(tasks)
        trained = metrics["policies"]["p"]["tokens"]
        prompt = len("<user>\nname a digit\n<assistant>\n")
        assert trained == 2 * 2 * useful * (prompt + 1), "only tasks that differ are trained on"


def test_all_tokens_count_toward_the_budget(tmp_path: Path) -> None:
    run = train_with_fakes(config_of(), tmp_path / "run", Replies())
    sampled = 0
    for step, metrics in run.watched.metrics.items():
        sampled += 2 * 2 * len(tasks_of(tmp_path / "run", step))
        assert metrics["rollout"]["total_tokens"] == sampled
    spent = config_of(train={"num_steps": 9, "max_tokens": 12})
    run = train_with_fakes(spent, tmp_path / "spent", Replies())
    (metrics,) = run.watched.metrics.values()
    assert metrics["rollout"]["num_tasks"] == 3, "the first round uses up the budget"


def test_tokens_of_dropped_groups_count_toward_the_budget() -> None:
    """As they do between steps (`staleness/dropped_tokens`)."""
    config = config_of(train={"num_steps": 9, "max_tokens": 12})
    parts = SamplingParts(config, Mock(), make_algorithm("grpo"), [])
    step = TrainStep(1, 0, 0, 4, frozenset("p"), 0, 0, Callback())
    assert parts.num_missing(step, 3) == 3
    step.dropped_tokens = 8
    assert parts.num_missing(step, 3) == 0


def test_a_run_that_was_killed_resumes_with_the_same_tasks(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train_with_fakes(config_of(), whole, Replies())
    train_with_fakes(config_of(), broken, Replies(), dies_after=2)
    train_with_fakes(config_of(), broken, Replies())
    for step in range(1, 5):
        assert tasks_of(broken, step) == tasks_of(whole, step)


def test_roles_rotate_over_the_tasks_of_all_rounds(tmp_path: Path) -> None:
    lora = {"kind": "lora", "model": "m"}
    config = config_of(
        policies={"p": lora, "q": lora},
        roles={"a": "p", "b": "q"},
        rollout={"rotate_roles": True},
    )
    run: FakeRun = train_with_fakes(config, tmp_path / "run", Replies())
    assert run.watched.metrics[1]["rollout"]["num_tasks"] > 3
    episodes = list(read_episodes(tmp_path / "run/episodes/step-000001"))
    for at, task in enumerate(tasks_of(tmp_path / "run", 1)):
        policies = {
            turn.role: turn.policy for e in episodes if e.task.id == task for turn in e.turns
        }
        assert policies == ({"a": "p", "b": "q"} if at % 2 == 0 else {"a": "q", "b": "p"})


def test_no_further_sampling_without_the_key(tmp_path: Path) -> None:
    config = config_of(rollout={"max_resamples": 0})
    run = train_with_fakes(config, tmp_path / "run", Replies())
    assert len(tasks_of(tmp_path / "run", 1)) == 3
    assert "flat_tasks" not in run.watched.metrics[1]["rollout"]


def plays(task: str, *values: float) -> list[Episode]:
    return [linear(task, n, ("a", rewards(team=value))) for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("algo", "flat"),
    [
        ("grpo", ["equal"]),
        ("rloo", ["equal"]),
        ("dr_mas", ["equal"]),
        ("reinforce_pp", []),  # compares over the batch: 1 is above the mean
        ("rae", []),  # compares with a running baseline, 0 at first
    ],
)
def test_a_task_is_flat_if_its_advantages_are_zero(algo: str, flat: list[str]) -> None:
    episodes = [*plays("equal", 1.0, 1.0), *plays("mixed", 0.0, 1.0)]
    made = make_algorithm(algo)
    assert made.flat_tasks(episodes) == flat
    assert made.state() == {}, "looking changes nothing"
    assert all(turn.credit.advantage is None for e in episodes for turn in e.turns)


def test_a_tree_is_flat_if_all_its_decisions_are() -> None:
    trees = [siblings("equal", "a", [1.0, 1.0]), siblings("mixed", "a", [1.0, 0.0])]
    assert make_algorithm("at_grpo").flat_tasks(trees) == ["equal"]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"algo": {"type": "ppo"}}, "'ppo' compares returns with a critic's values"),
        ({"judge": {"by": "rule"}}, "judges score the whole batch"),
    ],
)
def test_what_cannot_resample_is_rejected(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(**sections)
