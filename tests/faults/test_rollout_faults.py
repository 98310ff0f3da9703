"""Environments and samplers that break: each takes down its own episode and nothing else."""

import asyncio
import time

import pytest

from pettingllms.algos import make_algorithm
from pettingllms.errors import SamplerError
from pettingllms.inference.scripted import ByteRenderer
from pettingllms.rollout import Seat
from pettingllms.types import Episode, episode_line
from toys import AnsweringSampler, Relay, by_chance, play_with, roll


class Faulty(Relay):
    """Task 1 goes wrong in one of the calls; all other tasks are sound."""

    def __init__(self, where: str, hang: bool) -> None:
        super().__init__()
        self.where, self.hang = where, hang

    def go_wrong(self, where: str, start: int) -> None:
        if where == self.where and start == 1:
            while self.hang:
                pass
            raise RuntimeError("the board caught fire")

    def reset(self, task, seed):
        self.go_wrong("reset", task.seed)
        return super().reset(task, seed)

    def acting(self, state):
        self.go_wrong("acting", state.start)
        return super().acting(state)

    def observe(self, state, role):
        self.go_wrong("observe", state.start)
        return super().observe(state, role)

    def step(self, state, replies):
        self.go_wrong("step", state.start)
        return super().step(state, replies)

    def success(self, state, role):
        self.go_wrong("success", state.start)
        return super().success(state, role)


def lines(episodes: list[Episode], but: str) -> list[str]:
    return [episode_line(e) for e in episodes if e.task.id != but]


@pytest.mark.parametrize("type_", ["linear", "tree"])
@pytest.mark.parametrize("hang", [False, True], ids=["raises", "hangs"])
@pytest.mark.parametrize("where", ["reset", "acting", "observe", "step", "success"])
def test_a_broken_environment_fails_its_own_episodes_alone(where, hang, type_) -> None:
    options = {"num_tasks": 4, "num_samples": 2, "type": type_, "env_seconds": 0.1}
    sound = roll(Relay(), **options)
    broken = roll(Faulty(where, hang), **options)
    assert lines(broken, "train-1") == lines(sound, "train-1")
    failed = [episode for episode in broken if episode.task.id == "train-1"]
    reason = "did not return within 0.1 s" if hang else "RuntimeError: the board caught fire"
    for episode in failed:
        assert episode.failure is not None
        assert episode.failure.owner == "environment"
        assert reason in episode.failure.reason
        assert episode.success == {}


@pytest.mark.parametrize("where", ["acting", "observe", "step", "success"])
def test_no_turn_of_a_play_that_broke_is_trained_on(where) -> None:
    episodes = roll(Faulty(where, hang=False), num_tasks=3, num_samples=3)
    make_algorithm("grpo").assign(episodes)
    for episode in episodes:
        trained = [turn.advantage is not None for turn in episode.turns]
        assert not any(trained) if episode.task.id == "train-1" else all(trained)


class BreaksOnNine(Relay):
    """A reply of 9 is a crash: some forks of a decision break, others do not."""

    def step(self, state, replies):
        if "9" in replies.values():
            raise ZeroDivisionError
        return super().step(state, replies)


def test_a_fork_that_breaks_is_one_sibling_less() -> None:
    def answer(request, number):
        return "9" if number == 2 else str(number)

    (episode,) = roll(BreaksOnNine(), answer, num_tasks=1, num_samples=4, type="tree")
    assert episode.failure is None
    groups = make_algorithm("at_grpo").assign([episode])
    assert {len(group.members) for group in groups} == {3}
    broken = [turn for turn in episode.turns if turn.text == "9"]
    assert broken
    for turn in broken:
        assert turn.advantage is None
        assert turn.failure is not None
        assert "ZeroDivisionError" in turn.failure.reason


class Blocking(Relay):
    blocking = True

    def step(self, state, replies):
        time.sleep(3 if state.start == 1 else 0.001)
        return super().step(state, replies)


def test_an_environment_that_blocks_holds_up_nobody() -> None:
    start = time.monotonic()
    episodes = roll(Blocking(), num_tasks=4, num_samples=2, env_seconds=0.2)
    assert time.monotonic() - start < 2.5
    for episode in episodes:
        assert (episode.failure is not None) == (episode.task.id == "train-1")


class Moody:
    """A sampler that raises, hangs, or gives too few replies on some requests."""

    def __init__(self, mood: str) -> None:
        self.mood = mood
        self.sound = AnsweringSampler(by_chance)

    async def sample(self, request):
        if request.task_id == "train-1":
            if self.mood == "raises":
                raise SamplerError("engine core died")
            if self.mood == "hangs":
                await asyncio.sleep(60)
            if self.mood == "short":
                return []
        return await self.sound.sample(request)


@pytest.mark.parametrize("type_", ["linear", "tree"])
@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        ("raises", "SamplerError: engine core died"),
        ("hangs", "no reply within 0.1 s"),
        ("short", "the sampler gave 0 replies"),
    ],
)
def test_a_failing_sampler_fails_its_own_turns_alone(mood, reason, type_) -> None:
    seats = {role: Seat("p", Moody(mood), ByteRenderer()) for role in ("a", "b")}
    episodes = play_with(
        Relay(), seats, num_tasks=3, num_samples=2, type=type_, sampler_seconds=0.1
    )
    for episode in episodes:
        if episode.task.id != "train-1":
            assert episode.failure is None
            continue
        assert episode.failure is not None
        assert episode.failure.owner == "sampler"
        assert reason in episode.failure.reason
        assert all(turn.failure == episode.failure for turn in episode.turns)


def test_a_bug_of_ours_is_not_swallowed(monkeypatch) -> None:
    def broken(*_):
        raise AssertionError("ours")

    monkeypatch.setattr("pettingllms.rollout.table.derive_seed", broken)
    with pytest.raises(ExceptionGroup) as caught:
        roll(Relay(), num_tasks=1)
    assert "ours" in str(caught.value.exceptions[0])


def test_a_run_that_is_cancelled_stops_at_once() -> None:
    async def never(request):
        await asyncio.sleep(60)

    class Never:
        sample = staticmethod(never)

    async def run() -> None:
        from pettingllms.config import RewardConfig, RolloutConfig
        from pettingllms.rollout import Worker

        env = Relay()
        seats = {role: Seat("p", Never(), ByteRenderer()) for role in env.roles}
        worker = Worker(env, seats, RolloutConfig(type="linear"), RewardConfig())
        async with asyncio.timeout(0.2):
            await worker.run(env.tasks("train"), 0, lambda _: None)

    start = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert time.monotonic() - start < 2
