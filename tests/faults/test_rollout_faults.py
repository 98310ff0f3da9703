"""Environments and samplers that break: each takes down its own episode and nothing else."""

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest
from toys import AnsweringSampler, Relay, by_chance, play_with, roll

from pettingllms.algos import make_algorithm
from pettingllms.errors import SamplerError
from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import Episode, Rewards, Sample, Scored, Task, episode_line, user


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


@pytest.mark.parametrize("type_", ["linear", "tree", "replay"])
@pytest.mark.parametrize("hang", [False, True], ids=["raises", "hangs"])
@pytest.mark.parametrize("where", ["reset", "acting", "observe", "step", "success"])
def test_a_broken_environment_fails_its_own_episodes_alone(where, hang, type_) -> None:
    options = {"num_tasks": 4, "num_samples": 2, "type": type_, "env_timeout": 0.1}
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
        trained = [turn.credit.advantage is not None for turn in episode.turns]
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
        assert turn.credit.advantage is None
        assert turn.credit.failure is not None
        assert "ZeroDivisionError" in turn.credit.failure.reason


class Blocking(Relay):
    blocking = True

    def step(self, state, replies):
        time.sleep(3 if state.start == 1 else 0.001)
        return super().step(state, replies)


def test_an_environment_that_blocks_delays_no_other_episode() -> None:
    start = time.monotonic()
    episodes = roll(Blocking(), num_tasks=4, num_samples=2, env_timeout=0.2)
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


@pytest.mark.parametrize("type_", ["linear", "tree", "replay"])
@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        ("raises", "SamplerError: engine core died"),
        ("hangs", "no reply within 0.1 s"),
        ("short", "replies; expected "),
    ],
)
def test_a_failing_sampler_fails_its_own_turns_alone(mood, reason, type_) -> None:
    players = {role: Player("p", Moody(mood), ByteRenderer()) for role in ("a", "b")}
    episodes = play_with(
        Relay(), players, num_tasks=3, num_samples=2, type=type_, sampler_timeout=0.1
    )
    for episode in episodes:
        if episode.task.id != "train-1":
            assert episode.failure is None
            continue
        assert episode.failure is not None
        assert episode.failure.owner == "sampler"
        assert reason in episode.failure.reason
        assert all(turn.credit.failure == episode.failure for turn in episode.turns)


def test_a_bug_of_ours_is_not_swallowed(monkeypatch) -> None:
    def broken(*_):
        raise AssertionError("ours")

    monkeypatch.setattr("pettingllms.rollouts.context.derive_seed", broken)
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
        from pettingllms.rollouts import Worker

        env = Relay()
        players = {role: Player("p", Never(), ByteRenderer()) for role in env.roles}
        worker = Worker(env, players, RolloutConfig(type="linear"), RewardConfig())
        async with asyncio.timeout(0.2):
            await worker.run(env.tasks("train"), 0, lambda _: None)

    start = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert time.monotonic() - start < 2


class Odd(Relay):
    """Task 1 answers with what the contract does not allow."""

    def __init__(self, oddity: str) -> None:
        super().__init__()
        self.oddity = oddity

    def is_odd(self, state, oddity: str) -> bool:
        return state.start == 1 and self.oddity == oddity

    def acting(self, state):
        return ("zoe",) if self.is_odd(state, "stranger") else super().acting(state)

    def observe(self, state, role):
        if self.is_odd(state, "text"):
            return ["hello"]
        if self.is_odd(state, "generator"):
            return (1 / 0 for _ in range(1))
        if self.is_odd(state, "surrogate"):
            return [user("\ud800")]
        return super().observe(state, role)

    def step(self, state, replies):
        result = super().step(state, replies)
        if self.is_odd(state, "nothing"):
            return None
        if self.is_odd(state, "number"):
            return replace(result, rewards=Rewards(process=dict.fromkeys(replies, 12.0)))
        if self.is_odd(state, "infinite"):
            return replace(result, metrics={"x": float("nan")})
        if self.is_odd(state, "huge"):
            return replace(result, rewards=Rewards(team=Scored(1e308)))
        return result


ODDITIES = [
    "stranger", "text", "generator", "surrogate", "nothing", "number", "infinite", "huge",
]  # fmt: skip


@pytest.mark.parametrize("type_", ["linear", "tree", "replay"])
@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_answer_outside_the_contract_fails_no_other_episode(oddity, type_) -> None:
    options = {"num_tasks": 3, "num_samples": 2, "type": type_}
    episodes = roll(Odd(oddity), **options)
    assert lines(episodes, "train-1") == lines(roll(Relay(), **options), "train-1")
    for episode in episodes:
        assert (episode.failure is not None) == (episode.task.id == "train-1")


ODD_SAMPLES = [
    "few", "many", "none", "log-probs short", "log-probs nan", "too long", "id too large",
]  # fmt: skip


def odd_samples(oddity: str, request) -> list[Sample]:
    ids = np.array([52], dtype=np.int32)
    sample = Sample(ids, np.array([-0.5], dtype=np.float32), 1, "stop")
    odd = {
        "few": [sample] * (request.num_samples - 1),
        "many": [sample] * (request.num_samples + 1),
        "none": [None] * request.num_samples,
        "log-probs short": [replace(sample, ids=np.array([52, 52]))] * request.num_samples,
        "log-probs nan": [replace(sample, logprobs=np.array([np.nan]))] * request.num_samples,
        "too long": [replace(sample, ids=np.full(999, 52), logprobs=None)] * request.num_samples,
        "id too large": [replace(sample, ids=np.array([2**40]))] * request.num_samples,
    }
    return odd[oddity]


@pytest.mark.parametrize("type_", ["linear", "tree", "replay"])
@pytest.mark.parametrize(
    "oddity",
    ["few", "many", "none", "log-probs short", "log-probs nan", "too long", "id too large"],
)
def test_a_sample_outside_the_contract_is_a_failure_of_the_sampler(oddity, type_) -> None:
    class Strange:
        async def sample(self, request):
            if request.task_id == "train-1":
                return odd_samples(oddity, request)
            return await AnsweringSampler(by_chance).sample(request)

    players = {role: Player("p", Strange(), ByteRenderer()) for role in ("a", "b")}
    for episode in play_with(Relay(), players, num_tasks=3, num_samples=2, type=type_):
        failed = episode.failure is not None and episode.failure.owner == "sampler"
        assert failed == (episode.task.id == "train-1")


def test_a_sampler_that_uses_its_buffer_again_changes_no_turn() -> None:
    class Reusing:
        buffer = np.zeros(1, dtype=np.int32)

        async def sample(self, request):
            self.buffer[0] = 48 + request.seed % 10
            return [Sample(self.buffer[:], None, 1, "stop")]

    players = {role: Player("p", Reusing(), ByteRenderer()) for role in ("a", "b")}
    for episode in play_with(Relay(), players, num_tasks=3, num_samples=1):
        for turn in episode.turns:
            assert bytes(turn.response_ids.tolist()).decode() == turn.text


@pytest.mark.parametrize("width", [1, 2, 1000])
def test_a_cancelled_future_in_a_sampler_loses_no_episode(width: int) -> None:
    class Cancelling(Moody):
        async def sample(self, request):
            if request.task_id == "train-1":
                future = asyncio.get_running_loop().create_future()
                future.cancel()
                await future
            return await self.sound.sample(request)

    players = {role: Player("p", Cancelling("sound"), ByteRenderer()) for role in ("a", "b")}
    episodes = play_with(Relay(), players, num_tasks=5, num_samples=2, max_concurrent=width)
    assert len(episodes) == 10
    assert sum(episode.failure is not None for episode in episodes) == 2


def test_a_samplers_own_time_out_is_not_taken_for_ours() -> None:
    class Slow:
        async def sample(self, request):
            raise TimeoutError("connect to engine")

    players = {role: Player("p", Slow(), ByteRenderer()) for role in ("a", "b")}
    (episode,) = play_with(Relay(), players, num_tasks=1, num_samples=1)
    assert episode.failure is not None
    assert episode.failure.reason == "TimeoutError: connect to engine"


def test_one_task_twice_in_a_batch_is_refused() -> None:
    class Twice(Relay):
        def tasks(self, split):
            return [Task("same", seed=1), Task("same", seed=2)]

    with pytest.raises(ValueError, match="task id 'same' occurs twice in one batch"):
        roll(Twice(), num_tasks=2)
