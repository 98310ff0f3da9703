"""The loop, its team and its folder as they are, over fake engines: who moves, and what is played.

The weights of a policy are the number of batches it was trained on, and its replies are that
number, so success follows learning.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import FakeRun, train_with_fakes

from pettingllms.config import EnvConfig, RunConfig, parse_config
from pettingllms.envs import Environment, Split, StepResult
from pettingllms.errors import CheckpointError
from pettingllms.runs.checkpoint import load_checkpoint
from pettingllms.types import Message, Rewards, SampleRequest, Scored, Task, read_episodes, user


class LadderConfig(EnvConfig):
    height: int = Field(default=1, ge=1, le=9)
    """What a reply must reach."""
    num_train: int = 5
    """Tasks to train on."""


@dataclass(frozen=True)
class Climb:
    task: str
    said: tuple[str, ...] = ()


def play_height(env: Any, state: Climb, role: str, rng: Any) -> str:
    """As high as the ladder of this level."""
    return str(env.config.height)


class Ladder(Environment[Climb, LadderConfig]):
    """a names a number, then b; each succeeds if its number is as high as the ladder."""

    id = "ladder-v1"
    Config = LadderConfig
    players = {"random": play_height}

    @property
    def roles(self) -> tuple[str, ...]:
        return ("a", "b")

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{n}") for n in range(self.config.num_train)]

    def reset(self, task: Task, seed: int) -> Climb:
        return Climb(task.id)

    def acting(self, state: Climb) -> tuple[str, ...]:
        return self.roles[len(state.said) :][:1]

    def observe(self, state: Climb, role: str) -> Sequence[Message]:
        return [user(f"{state.task}: the ladder is {self.config.height} high. {state.said}")]

    def step(self, state: Climb, replies: Mapping[str, str]) -> StepResult[Climb]:
        ((role, reply),) = replies.items()
        after = replace(state, said=(*state.said, reply))
        return StepResult(after, Rewards(process={role: Scored(float(reply))}))

    def success(self, state: Climb, role: str) -> bool:
        return int(state.said[self.roles.index(role)]) >= self.config.height


LORA = {"kind": "lora", "model": "m"}
FULL = {"kind": "full", "model": "m"}


def config_of(**sections: Any) -> RunConfig:
    base = {
        "env": {"id": f"{__name__}:Ladder"},
        "algo": {"type": "grpo"},
        "policies": {"first": LORA, "second": LORA},
        "roles": {"a": "first", "b": "second"},
        "rollout": {"num_tasks": 2, "num_samples": 3},
        "train": {"num_steps": 6, "save_every": 1, "keep_checkpoints": 99},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values} if name == "train" else values
    return parse_config(base)


def by_weights(request: SampleRequest, number: int, weights: int) -> str:
    return str(weights)


def versions(folder: Path, step: int) -> tuple[dict[str, int], dict[str, str]]:
    state, _ = load_checkpoint(folder / "checkpoints" / f"step-{step:06d}")
    return state.versions, state.weight_hashes


def assert_moves(run: FakeRun, folder: Path, expected: Sequence[set[str]]) -> None:
    """In each step, exactly these policies are trained and published, and their weights change."""
    start = dict.fromkeys(run.weights, 0)
    before, weight_hashes = start, None
    for step, moving in enumerate(expected, start=1):
        assert {policy for at, policy in run.trained if at == step} == moving
        now, new_marks = versions(folder, step)
        assert now == {p: version + (p in moving) for p, version in before.items()}
        if weight_hashes is not None:
            assert {p for p in weight_hashes if weight_hashes[p] != new_marks[p]} == moving
        before, weight_hashes = now, new_marks
    published = [policy for engines in run.engines for policy in engines.published]
    updates = [policy for _, policy in run.trained]
    assert sorted(published) == sorted([*start, *updates]), "once at the start, once an update"


@pytest.mark.parametrize("kind", [LORA, FULL], ids=["lora", "full"])
def test_policies_that_alternate_move_one_at_a_time(kind: dict, tmp_path: Path) -> None:
    config = config_of(
        policies={"first": kind, "second": kind},
        train={"alternate": ["second", "first"], "alternate_every": 2},
    )
    run = train_with_fakes(config, tmp_path / "run", by_weights)
    one, two = {"first"}, {"second"}
    assert_moves(run, tmp_path / "run", [two, two, one, one, two, two])


def test_a_policy_that_joins_late_rests_until_then(tmp_path: Path) -> None:
    config = config_of(policies={"first": LORA, "second": {**LORA, "join_step": 4}})
    run = train_with_fakes(config, tmp_path / "run", by_weights)
    both = {"first", "second"}
    assert_moves(run, tmp_path / "run", [{"first"}] * 3 + [both] * 3)


def test_all_learn_in_every_step_if_nothing_is_said(tmp_path: Path) -> None:
    run = train_with_fakes(config_of(), tmp_path / "run", by_weights)
    assert_moves(run, tmp_path / "run", [{"first", "second"}] * 6)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("second", "third", "has no 'third', it has first, second"),
        ("alpha = 32", "alpha = 64", "alpha is 64, but the adapter in .* was trained with 32"),
    ],
    ids=["name", "alpha"],
)
def test_a_run_is_not_gone_on_with_by_another_team(
    before: str, after: str, reason: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train_with_fakes(config_of(train={"num_steps": 6, "save_every": 1}), run, by_weights, 2)
    file = run / "config.toml"
    text = file.read_text()
    assert before in text
    file.write_text(re.sub(rf"\b{before}\b", after, text))
    with pytest.raises(CheckpointError, match=reason):
        train_with_fakes(config_of(), run, by_weights)
    file.write_text(text)
    train_with_fakes(config_of(), run, by_weights)
    assert load_checkpoint(run / "checkpoints/step-000006") is not None


def test_the_turns_of_a_resting_policy_are_excluded_from_training(tmp_path: Path) -> None:
    config = config_of(train={"alternate": ["first", "second"], "alternate_every": 1})
    train_with_fakes(config, tmp_path / "run", by_weights)
    for step, learner in enumerate(["first", "second"] * 3, start=1):
        episodes = list(read_episodes(tmp_path / f"run/episodes/step-{step:06d}"))
        turns = [turn for episode in episodes for turn in episode.turns]
        assert {turn.policy for turn in turns} == {"first", "second"}, "who rests still plays"
        assert {turn.policy for turn in turns if turn.credit.advantage is not None} == {learner}
        for turn in turns:
            kept = turn.credit.learner_logprobs
            assert (kept is not None) == (turn.policy == learner), "what the learner made of them"
            assert kept is None or (kept - turn.logprobs == 0.25).all(), "on the turn it belongs to"


def test_critics_are_asked_about_those_who_learn_in_this_very_step(tmp_path: Path) -> None:
    config = config_of(
        algo={"type": "ppo"},
        train={"alternate": ["first", "second"], "alternate_every": 1, "num_steps": 3},
    )
    run = train_with_fakes(config, tmp_path / "run", by_weights)
    assert_moves(run, tmp_path / "run", [{"first"}, {"second"}, {"first"}])
    for step, learner in enumerate(["first", "second", "first"], start=1):
        episodes = list(read_episodes(tmp_path / f"run/episodes/step-{step:06d}"))
        turns = [turn for episode in episodes for turn in episode.turns]
        assert {turn.policy for turn in turns if turn.credit.values is not None} == {learner}


def test_who_rests_samples_one_reply_a_decision(tmp_path: Path) -> None:
    tree = {"algo": {"type": "at_grpo"}, "rollout": {"num_tasks": 2, "num_samples": 4}}
    resting = {"alternate": ["first", "second"], "alternate_every": 1, "num_steps": 2}
    found = {}
    for name, train in (("alternating", resting), ("together", {"num_steps": 2})):
        run = train_with_fakes(config_of(**tree, train=train), tmp_path / name, by_weights)
        (engines,) = run.engines
        found[name] = [(r.policy, r.num_samples) for r in engines.requests]
    one, two = found["alternating"][:4], found["alternating"][4:]
    assert set(one) == {("first", 4), ("second", 1)}
    assert set(two) == {("first", 1), ("second", 4)}
    assert {number for _, number in found["together"]} == {4}


LEVELS = {"key": "height", "levels": [1, 2, 4], "window": 1, "raise_at": 1.0}


def levels_of(run: FakeRun) -> list[float]:
    return [metrics["curriculum"]["level"] for metrics in run.watched.metrics.values()]


def test_the_level_rises_when_all_succeed_and_is_what_is_played(tmp_path: Path) -> None:
    config = config_of(curriculum=LEVELS)
    run = train_with_fakes(config, tmp_path / "run", by_weights)
    # Weights are 0 to 5 in steps 1 to 6: a ladder of 1 is climbed in step 2, one of 2 in step 3.
    assert levels_of(run) == [1, 1, 2, 3, 3, 3]
    success = [metrics["curriculum"]["success"] for metrics in run.watched.metrics.values()]
    assert success == [0, 1, 1, 0, 1, 1]
    for step, height in enumerate([1, 1, 2, 4, 4, 4], start=1):
        episodes = list(read_episodes(tmp_path / f"run/episodes/step-{step:06d}"))
        assert {e.env for e in episodes} == {f"ladder-v1[height={height}]"}
        prompts = {turn.messages[0].content for e in episodes for turn in e.turns}
        assert all(f"the ladder is {height} high" in prompt for prompt in prompts)
    assert len([text for text in run.watched.said if text.startswith("curriculum:")]) == 2


def test_a_level_with_other_tasks_hands_out_its_own(tmp_path: Path) -> None:
    few, many = {"key": "num_train", "levels": [2, 6], "window": 1, "raise_at": 1.0}, 6
    run = train_with_fakes(config_of(curriculum=few), tmp_path / "run", by_weights)
    assert levels_of(run) == [1, 1, 2, 2, 2, 2]
    played = {1: [], 2: []}
    for step, level in enumerate(levels_of(run), start=1):
        episodes = read_episodes(tmp_path / f"run/episodes/step-{step:06d}")
        played[level] += sorted({episode.task.id for episode in episodes})
    assert set(played[1]) == {"train-0", "train-1"}
    # Four are done: two are left of the first pass over six, and then there is a whole one.
    assert len(set(played[2][:2])) == 2
    assert set(played[2][2:]) == {f"train-{n}" for n in range(many)}


def test_one_role_may_be_whose_success_counts(tmp_path: Path) -> None:
    still = {"first": LORA, "second": {"kind": "frozen", "model": "m"}}
    shares = {}
    for role in ("a", "b"):
        config = config_of(policies=still, curriculum={**LEVELS, "role": role})
        run = train_with_fakes(config, tmp_path / role, by_weights)
        shares[role] = levels_of(run)
    assert shares == {"a": [1, 1, 2, 3, 3, 3], "b": [1] * 6}


def test_a_scripted_player_plays_the_level_of_the_step(tmp_path: Path) -> None:
    config = config_of(
        policies={"first": LORA, "script": {"kind": "scripted"}},
        roles={"a": "first", "b": "script"},
        curriculum={**LEVELS, "role": "a"},
    )
    train_with_fakes(config, tmp_path / "run", by_weights)
    episodes = list(read_episodes(tmp_path / "run/episodes/step-000006"))
    assert {t.text for e in episodes for t in e.turns if t.role == "b"} == {"4"}


@pytest.mark.parametrize(("options", "height"), [({}, 4), ({"level": 2}, 2)])
def test_evaluation_plays_one_level_and_the_same_tasks_in_every_step(
    options: dict, height: int, tmp_path: Path
) -> None:
    config = config_of(curriculum=LEVELS, eval=options, train={"eval_every": 1})
    run = train_with_fakes(config, tmp_path / "run", by_weights)
    success = [m["roles"]["a"]["eval_success"] for m in run.watched.metrics.values()]
    assert success == [float(weights >= height) for weights in range(1, 7)]
    (engines,) = run.engines
    asked = [bytes(r.prompt_ids.astype("u1")).decode() for r in engines.requests]
    tests = [prompt for prompt in asked if "test-" in prompt]
    assert tests
    assert all(f"the ladder is {height} high" in prompt for prompt in tests)
    for n in range(5):
        assert sum(f"test-{n}:" in prompt for prompt in tests) == 2 * 6, "each role, each step"


@pytest.mark.parametrize("dies_after", range(1, 6))
def test_a_run_that_was_killed_goes_on_at_its_level_and_in_its_turn(
    dies_after: int, tmp_path: Path
) -> None:
    config = config_of(
        curriculum={**LEVELS, "window": 2, "raise_at": 0.5, "role": "a"},
        train={"alternate": ["first", "second"], "alternate_every": 2},
    )
    whole = train_with_fakes(config, tmp_path / "whole", by_weights)
    assert len(set(levels_of(whole))) > 1, "the level must move for this test to say anything"
    train_with_fakes(config, tmp_path / "cut", by_weights, dies_after)
    rest = train_with_fakes(config, tmp_path / "cut", by_weights)
    assert rest.weights == whole.weights
    assert measured(tmp_path / "cut") == measured(tmp_path / "whole")
    final = "checkpoints/step-000006"
    assert load_checkpoint(tmp_path / "cut" / final) == load_checkpoint(tmp_path / "whole" / final)


def measured(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {
            key: value
            for key, value in json.loads(line).items()
            if not key.startswith(("time/", "idle/")) and "per_second" not in key
        }
        for line in lines
    ]


def test_success_moves_the_level_and_no_advantage(tmp_path: Path, monkeypatch) -> None:
    """The same play with another success: the same credit, to the last bit."""
    found = []
    for answer in (True, False):
        monkeypatch.setattr(Ladder, "success", lambda self, state, role, answer=answer: answer)
        config = config_of(curriculum={**LEVELS, "levels": [3, 3]}, train={"num_steps": 3})
        folder = tmp_path / str(answer)
        run = train_with_fakes(config, folder, lambda r, number, w: str((number * 3 + w) % 7))
        episodes = read_episodes(folder / "episodes/step-000003")
        advantages = [turn.credit.advantage for episode in episodes for turn in episode.turns]
        found.append((levels_of(run), advantages))
    (risen, first), (flat, second) = found
    assert (risen, flat) == ([1, 2, 2], [1, 1, 1])
    assert first == second
