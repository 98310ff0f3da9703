"""Asynchronous training: the loop as it is, over fake engines that sample while fake learners
learn."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import fakes
from fakes import FakeEngines, FakeLearners, legal_cell, train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import ClusterError, ConfigError
from pettingllms.runs.folder import RunFolder
from pettingllms.types import Episode, SampleRequest, VersionRun, read_episodes

NUM_TASKS = 4


def config_of(max_staleness: int, **sections: Any) -> RunConfig:
    base = {
        "env": {"id": "tic_tac_toe-v1", "terse": True},
        "algo": {"type": "grpo"},
        "policies": {"p": {"kind": "lora", "model": "m"}, "q": {"kind": "lora", "model": "m"}},
        "roles": {"player_x": "p", "player_o": "q"},
        "train": {"num_steps": 5, "save_every": 1},
        "guard": {"action": "off"},
    }
    rollout = {"num_tasks": NUM_TASKS, "num_samples": 2, "max_staleness": max_staleness}
    return parse_config({**base, **sections, "rollout": rollout | sections.get("rollout", {})})


def tasks_of(folder: Path, step: int) -> list[str]:
    """The tasks of a step."""
    found = read_episodes(folder / f"episodes/step-{step:06d}")
    return list(dict.fromkeys(episode.task.id for episode in found))


@pytest.fixture
def slow_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners that take as long as many replies."""
    call = FakeLearners.call

    async def slowly(self: Any, method: str, policy: str = "", *args: Any) -> Any:
        for _ in range(40 if method == "train" else 0):
            await asyncio.sleep(0)
        return await call(self, method, policy, *args)

    monkeypatch.setattr(FakeLearners, "call", slowly)


@pytest.mark.usefixtures("slow_learners")
@pytest.mark.parametrize("max_staleness", [1, 2, 4])
def test_batches_are_whole_and_within_the_bound(tmp_path: Path, max_staleness: int) -> None:
    run = train_with_fakes(config_of(max_staleness), tmp_path / "run", legal_cell)
    ages = [metrics["staleness"] for metrics in run.watched.metrics.values()]
    assert ages[0]["max"] == 0
    assert max(age["max"] for age in ages) == min(max_staleness, 4)
    assert not any(age["dropped_groups"] for age in ages)
    for step in range(1, 6):
        episodes = list(read_episodes(tmp_path / "run" / f"episodes/step-{step:06d}"))
        assert set(Counter(one.task.id for one in episodes).values()) == {2}, "groups are whole"
        assert len(tasks_of(tmp_path / "run", step)) == NUM_TASKS
        assert max(step - 1 - version for version in versions(episodes)) <= max_staleness
    seen = [task for step in range(1, 6) for task in tasks_of(tmp_path / "run", step)]
    assert len(set(seen)) == len(seen), "each task at most once in a pass"
    assert run.trained == [(step, name) for step in range(1, 6) for name in "pq"]


def versions(episodes: list[Episode]) -> list[int]:
    return [turn.policy_version or 0 for one in episodes for turn in one.turns]


@pytest.mark.usefixtures("slow_learners")
def test_episodes_continue_with_new_weights(tmp_path: Path) -> None:
    class Slow(FakeEngines):
        async def sample(self, request: SampleRequest) -> Any:
            for _ in range(30):
                await asyncio.sleep(0)
            return await super().sample(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEngines", Slow)
        train_with_fakes(config_of(2), tmp_path / "run", legal_cell)
    mixed = 0
    for step in range(1, 6):
        for episode in read_episodes(tmp_path / "run" / f"episodes/step-{step:06d}"):
            found = versions([episode])
            assert found == sorted(found), "versions only rise within an episode"
            mixed += found[0] != found[-1]
    assert mixed


@pytest.mark.usefixtures("slow_learners")
def test_staleness_counts_the_versions_of_tokens(tmp_path: Path) -> None:
    class InFlight(FakeEngines):
        """A reply's last two tokens have the version that is published meanwhile."""

        async def sample(self, request: SampleRequest) -> Any:
            before = self.at[request.policy]
            for _ in range(30):
                await asyncio.sleep(0)
            samples = await super().sample(request)
            later = self.at[request.policy]
            if later == before:
                return samples
            runs = (VersionRun(later, 2),)
            return [replace(one, policy_version=before, later_versions=runs) for one in samples]

    def padded(request: SampleRequest, number: int, weights: int) -> str:
        return f"{legal_cell(request, number, weights)}  "

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEngines", InFlight)
        run = train_with_fakes(config_of(2), tmp_path / "run", padded)
    mixed = 0
    for step, metrics in run.watched.metrics.items():
        episodes = read_episodes(tmp_path / "run" / f"episodes/step-{step:06d}")
        turns = [turn for episode in episodes for turn in episode.turns]
        assert all(turn.num_tokens == 3 for turn in turns)
        ages = [
            step - 1 - version
            for turn in turns
            for version, num_tokens in turn.version_runs
            for _ in range(num_tokens)
        ]
        assert metrics["staleness"]["mean"] == pytest.approx(sum(ages) / len(ages))
        assert metrics["staleness"]["max"] == max(ages) <= 2
        mixed += sum(bool(turn.later_versions) for turn in turns)
    assert mixed, "the test had no reply of two versions"


def test_a_slow_group_is_dropped_and_sampled_again(tmp_path: Path) -> None:
    started: Counter[str] = Counter()

    class SlowTask(FakeEngines):
        """The first reply of one task arrives after several steps."""

        async def sample(self, request: SampleRequest) -> Any:
            samples = await super().sample(request)
            started[request.task_id] += 1
            if request.task_id == first and started[first] <= 2:
                while self.at["p"] < 4:  # noqa: ASYNC110 - no event: publishing is the fakes'
                    await asyncio.sleep(0)
            return samples

    config = config_of(1, train={"num_steps": 9, "save_every": 1})
    train_with_fakes(config, tmp_path / "probe", legal_cell)
    first = tasks_of(tmp_path / "probe", 1)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEngines", SlowTask)
        run = train_with_fakes(config, tmp_path / "run", legal_cell)
    dropped = [metrics["staleness"]["dropped_groups"] for metrics in run.watched.metrics.values()]
    assert sum(dropped) == 1
    (step,) = (n for n, count in enumerate(dropped, 1) if count)
    tokens = run.watched.metrics[step]["staleness"]["dropped_tokens"]
    assert tokens > 0
    counted = [metrics["rollout"]["total_tokens"] for metrics in run.watched.metrics.values()]
    trained = run.watched.metrics[step]["rollout"]["tokens"]
    assert counted[step - 1] - counted[step - 2] == trained + tokens, "the budget has both"
    seen = Counter(task for step in range(1, 10) for task in tasks_of(tmp_path / "run", step))
    assert seen[first] == 1
    assert set(seen.values()) == {1}


def test_a_group_that_ended_during_learning_comes_before_newer_ones(tmp_path: Path) -> None:
    """The buffer has enough groups for the next step, after which this one would be too old."""
    training = 0

    class SlowTask(FakeEngines):
        """The replies of one task, the first of version 1, arrive while step 3 is trained on."""

        async def sample(self, request: SampleRequest) -> Any:
            samples = await super().sample(request)
            while request.task_id == slow and training < 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
            return samples

        async def use(self) -> Any:
            for _ in range(200):  # at the end of a step: all other groups end before the next
                await asyncio.sleep(0)
            return await super().use()

    call = FakeLearners.call

    async def slowly(self: Any, method: str, policy: str = "", *args: Any) -> Any:
        nonlocal training
        if method == "train":
            training = args[1]
            for _ in range(200):
                await asyncio.sleep(0)
        return await call(self, method, policy, *args)

    train_with_fakes(config_of(0), tmp_path / "probe", legal_cell)
    slow = tasks_of(tmp_path / "probe", 4)[0]  # starts once version 1 is published
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEngines", SlowTask)
        patch.setattr(FakeLearners, "call", slowly)
        run = train_with_fakes(config_of(2), tmp_path / "run", legal_cell)
    assert slow in tasks_of(tmp_path / "run", 4)
    assert not any(one["staleness"]["dropped_groups"] for one in run.watched.metrics.values())


def test_a_run_samples_no_more_than_it_trains_on(tmp_path: Path) -> None:
    run = train_with_fakes(config_of(4), tmp_path / "run", legal_cell)
    asked = {request.task_id for engines in run.engines for request in engines.requests}
    assert len(asked) == 5 * NUM_TASKS


@pytest.mark.usefixtures("slow_learners")
def test_a_run_that_was_killed_loses_and_repeats_no_task(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train_with_fakes(config_of(2), folder, legal_cell, dies_after=3)
    state, _ = RunFolder(folder).open(lambda _: None) or (None, None)
    assert state is not None
    assert state.num_tasks_done == 2 * NUM_TASKS, "the third step was not saved"
    assert len(state.open_tasks) == 3 * NUM_TASKS, "as many as may be in progress"
    run = train_with_fakes(config_of(2), folder, legal_cell)
    assert run.trained == [(step, name) for step in range(3, 6) for name in "pq"]
    seen = [task for step in range(1, 6) for task in tasks_of(folder, step)]
    assert len(set(seen)) == len(seen)


def test_the_sampling_speed_counts_the_whole_step(tmp_path: Path) -> None:
    """Engines sample while learners learn, so the wait for groups is not the time they took."""
    run = train_with_fakes(config_of(2), tmp_path / "run", legal_cell)
    for metrics in run.watched.metrics.values():
        rollout, seconds = metrics["rollout"], metrics["time"]["step"]
        assert rollout["tokens_per_second"] == pytest.approx(rollout["tokens"] / seconds)


def test_a_failed_group_ends_the_run_and_stops_all_others(tmp_path: Path) -> None:
    class Dying(FakeEngines):
        async def sample(self, request: SampleRequest) -> Any:
            if len(self.requests) > 50:
                raise ClusterError("the engine died too often")
            return await super().sample(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEngines", Dying)
        with pytest.raises(ClusterError, match="died too often"):
            train_with_fakes(config_of(2), tmp_path / "run", legal_cell)


def test_critics_value_batches_of_several_versions(tmp_path: Path) -> None:
    config = config_of(2, algo={"type": "ppo"})
    run = train_with_fakes(config, tmp_path / "run", legal_cell)
    assert len(run.watched.metrics) == 5


def test_roles_rotate_from_task_to_task(tmp_path: Path) -> None:
    config = config_of(1, rollout={"rotate_roles": True})
    train_with_fakes(config, tmp_path / "run", legal_cell)
    first_roles: Counter[str] = Counter()
    for step in range(1, 6):
        for episode in read_episodes(tmp_path / "run" / f"episodes/step-{step:06d}"):
            first_roles[episode.turns[0].policy] += 1
    assert first_roles["p"] == first_roles["q"]


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_groups_share_the_bound_of_concurrent_episodes(tmp_path: Path, max_staleness: int) -> None:
    config = config_of(max_staleness, rollout={"max_concurrent": 3})
    sampling: set[tuple[str, int]] = set()
    most = 0

    class Counting(FakeEngines):
        async def sample(self, request: SampleRequest) -> Any:
            nonlocal most
            sampling.add((request.task_id, request.seed))
            most = max(most, len(sampling))
            for _ in range(5):
                await asyncio.sleep(0)
            sampling.remove((request.task_id, request.seed))
            return await super().sample(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEngines", Counting)
        train_with_fakes(config, tmp_path / "run", legal_cell)
    assert most == 3


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_judges_compare_with_references_of_the_same_problem(
    tmp_path: Path, max_staleness: int
) -> None:
    config = config_of(
        max_staleness,
        env={"id": "story-v1"},
        policies={
            "p": {"kind": "lora", "model": "m"},
            "ref": {"kind": "scripted", "player": "author"},
        },
        roles={"writer_1": "p", "writer_2": "p"},
        judge={"by": "rule", "against": "reference", "reference": "ref"},
    )
    run = train_with_fakes(config, tmp_path / "run", lambda *_: "Once upon a time.")
    for metrics in run.watched.metrics.values():
        assert metrics["judge"]["failed_share"] == 0


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"league": {}}, r"\[league\]: opponents are chosen by step"),
        ({"train": {"alternate": ["p", "q"]}}, "train.alternate"),
        ({"cluster": {"placement": "colocated"}}, 'cluster.placement = "colocated"'),
        ({"inference": {"recording": "r"}}, "inference.recording"),
    ],
)
def test_what_it_does_not_go_with_is_rejected(sections: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config_of(1, **sections)
