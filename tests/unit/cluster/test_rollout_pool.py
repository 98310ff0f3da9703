"""How the driver distributes tasks over workers, without Ray: workers are objects here."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from ray.exceptions import ObjectLostError, RayActorError

from pettingllms.cluster import rollout_pool as module
from pettingllms.cluster import stored_content
from pettingllms.cluster.playing import Play
from pettingllms.cluster.rollout_pool import RolloutPool, batches
from pettingllms.cluster.rollout_workers import Death, Started, share_of
from pettingllms.cluster.stored_content import StoredContent
from pettingllms.config import ClusterConfig, InferenceConfig, RolloutConfig
from pettingllms.errors import ClusterError, EpisodesLostError, LearnerLostError, TaskError
from pettingllms.policies.resources import num_workers
from pettingllms.rollouts.packed_episodes import pack
from pettingllms.types import Episode, Task

TASKS = [Task(f"t{number}") for number in range(40)]


class Method:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def remote(self, *args: Any) -> Any:
        return asyncio.ensure_future(self._function(*args))

    def options(self, num_returns: int) -> Any:
        assert num_returns == 3
        done: Any = "not loaded"
        return SimpleNamespace(remote=lambda *args: (self.remote(*args), done, done))


class Worker:
    """Takes a moment per batch; dies at the batch numbers in `dies_at`."""

    def __init__(self, dies_at: int = -1, seconds: float = 0.0) -> None:
        self.played: list[list[str]] = []
        self.bounds: list[tuple[int, int]] = []
        self.dies_at, self.seconds = dies_at, seconds
        self.is_dead = False
        self.loses = -1
        """Number of the batch whose result is lost."""
        self._death: asyncio.Event = asyncio.Event()
        self.play, self.start = Method(self._play), Method(self._start)
        self.next_death, self.bound = Method(self._next_death), Method(self._bound)
        self.ping, self.hangs = Method(self._ping), False
        self.stop, self.num_stopped = Method(self._stop), 0

    async def _start(self) -> Started:
        return Started(f"http://10.0.0.1:{id(self)}", ("what users should know",))

    async def _stop(self) -> None:
        self.num_stopped += 1

    async def _bound(self, rank: int, number: int) -> None:
        self.bounds.append((rank, number))

    async def _ping(self) -> None:
        await asyncio.sleep(60 if self.hangs else 0)

    async def _next_death(self) -> None:
        await self._death.wait()
        raise RayActorError

    async def _play(self, play: Play, tasks: list[Task]) -> Any:
        self.is_dead |= len(self.played) == self.dies_at
        if self.is_dead:
            self._death.set()
            raise RayActorError
        await asyncio.sleep(self.seconds)
        self.played.append([task.id for task in tasks])
        if len(self.played) == self.loses:
            raise ObjectLostError("ff" * 28, None, "")
        made = [Episode(f"{t.id}/{n}", "e", t, 0) for t in tasks for n in range(4)]
        return pack(made, set()).summaries


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.ray, "put", lambda value: value)
    monkeypatch.setattr(module.ray, "kill", lambda actor: None)
    monkeypatch.setattr(module.ray, "cancel", lambda call: call.cancel())


def pool_of(
    workers: list[Worker],
    spares: list[Worker],
    max_restarts: int = 3,
    engine_timeout: float = 60.0,
) -> Any:
    made = iter([*workers, *spares])

    class Pool(RolloutPool):
        def _create(self, rank: int) -> Any:
            return next(made)

    config: Any = SimpleNamespace(
        cluster=ClusterConfig(max_restarts=max_restarts),
        inference=InferenceConfig(engine_timeout=engine_timeout),
    )
    return Pool(config, {}, {}, len(workers), lambda _: None)


def play(pool: Any, tasks: list[Task] = TASKS, **options: Any) -> tuple[list[str], list[int]]:
    counts: list[int] = []

    async def run() -> list[Episode]:
        await pool.start()
        rollout = RolloutConfig(num_samples=4, **options)
        how = Play(0, rollout, None, frozenset(), False, {}, {}, 1, 0)
        try:
            return await pool.play(how, tasks, counts.append)
        finally:
            await pool.stop()

    return [episode.id for episode in asyncio.run(run())], counts


EXPECTED = [f"{task.id}/{number}" for task in TASKS for number in range(4)]


def test_episodes_come_in_the_order_of_tasks_and_are_counted() -> None:
    workers = [Worker(), Worker(), Worker()]
    found, counts = play(pool_of(workers, []))
    assert found == EXPECTED
    assert counts == list(range(1, 161))
    assert all(worker.played for worker in workers)


def test_a_batch_whose_result_is_lost_is_played_again() -> None:
    workers = [Worker(), Worker()]
    workers[0].loses = 2
    found, counts = play(pool_of(workers, []))
    assert found == EXPECTED
    assert counts == list(range(1, 161))
    played = [name for worker in workers for batch in worker.played for name in batch]
    assert len(played) > len(TASKS)


def test_content_on_a_machine_that_left_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(_: Any) -> Any:
        raise ObjectLostError("ff" * 28, None, "")

    monkeypatch.setattr(stored_content.ray, "get", lost)
    content = StoredContent("tokens", "texts")
    for read in (content.tokens, content.text):
        with pytest.raises(EpisodesLostError, match="a machine that left the cluster"):
            read(0)


def test_a_slow_worker_gets_fewer_batches() -> None:
    slow, quick = Worker(seconds=0.3), Worker(seconds=0.01)
    found, _ = play(pool_of([slow, quick], []), max_concurrent=16)
    assert found == EXPECTED
    assert len(slow.played) < len(quick.played)
    assert quick.bounds[0] == (1, 2)
    assert slow.bounds[-1] == (0, 1), "the slow one has all slots once the other is done"


def test_batches_of_a_dead_worker_are_played_once_by_others() -> None:
    dying, other, spare = Worker(dies_at=2), Worker(seconds=0.02), Worker()
    found, counts = play(pool_of([dying, other], [spare]), max_concurrent=16)
    assert found == EXPECTED
    assert counts == list(range(1, 161))
    played = [task for one in (dying, other, spare) for some in one.played for task in some]
    assert sorted(played) == sorted(task.id for task in TASKS)


def test_a_worker_that_hangs_is_replaced_and_its_batches_are_played_again() -> None:
    hung, spare = Worker(seconds=30), Worker()
    hung.hangs = True
    found, counts = play(pool_of([hung], [spare], engine_timeout=0.2))
    assert found == EXPECTED
    assert counts == list(range(1, 161))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_worker_that_hangs_while_it_starts_ends_the_run(restarts: bool) -> None:
    class Hangs(Worker):
        async def _start(self) -> Started:
            await asyncio.sleep(60)
            return Started()

    pool = pool_of([Worker(dies_at=0) if restarts else Hangs()], [Hangs()], max_restarts=1)
    pool._config.inference = InferenceConfig(start_timeout=0.2)
    with pytest.raises(ClusterError, match=r"start within 0.2 s \(inference.start_timeout\)"):
        play(pool)


def test_workers_get_the_replacement_of_an_engine_once_its_learner_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise its requests would wait for ever, and each batch would fail with the old error."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    lost, replaced = [LearnerLostError("rank 0 died")], []

    async def replacement(at: int, generation: int, error: Exception) -> tuple[str, int]:
        if lost:
            raise lost.pop()
        return "new", 2

    async def replace(*given: Any) -> None:
        replaced.append(given)

    pool, death = pool_of([Worker()], []), Death(0, 0, 1, "killed")
    pool._engines = {"m": SimpleNamespace(replacement=replacement)}
    asyncio.run(pool._replace(SimpleNamespace(replace=Method(replace)), death))
    assert replaced == [(death, "new", 2)]


def test_workers_that_keep_dying_end_the_run() -> None:
    pool = pool_of(
        [Worker(dies_at=0), Worker(seconds=5)], [Worker(dies_at=0), Worker(dies_at=0)], 2
    )
    with pytest.raises(ClusterError, match=r"died 3 times, more than cluster.max_restarts = 2"):
        play(pool)


def test_a_router_knows_the_gateways_of_workers_and_of_their_successors() -> None:
    dying, other, spare = Worker(dies_at=2), Worker(seconds=0.02), Worker()
    pool, added = pool_of([dying, other], [spare]), []
    pool._router = SimpleNamespace(add=lambda *given: added.append(given))
    found, _ = play(pool, max_concurrent=16)
    assert found == EXPECTED
    urls = [(tag, int(url.rpartition(":")[2])) for tag, url in added]
    assert urls == [("0", id(dying)), ("1", id(other)), ("0", id(spare))]


def test_a_notice_of_all_workers_is_reported_once_and_programs_are_ended() -> None:
    workers = [Worker(), Worker()]
    pool = pool_of(workers, [])

    async def run() -> list[str]:
        notices: list[str] = await pool.start()
        await pool.stop()
        return notices

    assert asyncio.run(run()) == ["what users should know"]
    assert [worker.num_stopped for worker in workers] == [1, 1]


def test_tasks_with_one_id_are_rejected() -> None:
    with pytest.raises(TaskError, match="occurs twice"):
        play(pool_of([Worker()], []), [Task("a"), Task("a")])


def test_no_tasks_are_no_episodes() -> None:
    assert play(pool_of([Worker()], []), []) == ([], [])


@pytest.mark.parametrize(
    ("tasks", "episodes", "workers", "size"),
    [
        (8, 4, 2, 4),
        (8, 4, 8, 1),
        (64, 8, 4, 2),
        (2500, 4, 4, 16),
        (10_000, 1, 4, 64),
        (3, 100, 2, 1),
    ],
)
def test_batch_sizes(tasks: int, episodes: int, workers: int, size: int) -> None:
    found = batches([Task(str(number)) for number in range(tasks)], episodes, workers)
    assert max(map(len, found)) == size
    assert [task.id for some in found for task in some] == [str(number) for number in range(tasks)]


def test_shares_add_up() -> None:
    assert [share_of(64, rank, 5) for rank in range(5)] == [13, 13, 13, 13, 12]
    assert share_of(2, 3, 4) == 1


@pytest.mark.parametrize(
    ("replicas", "cores", "address", "recording", "expected"),
    [
        (1, 8, "", None, 0),
        (4, 64, "", None, 0),
        (5, 64, "", None, 2),
        (32, 64, "", None, 8),
        (32, 8, "", None, 4),
        (1, 8, "head:6379", None, 1),
        (32, 64, "head:6379", "folder", 0),
    ],
)
def test_auto(
    replicas: int, cores: int, address: str, recording: str | None, expected: int
) -> None:
    config: Any = SimpleNamespace(
        rollout=RolloutConfig(),
        cluster=ClusterConfig(address=address),
        inference=SimpleNamespace(recording=recording),
    )
    assert num_workers(config, replicas, cores) == expected
    config.rollout = RolloutConfig(num_workers=3)
    assert num_workers(config, replicas, cores) == 3


def test_a_play_that_is_cancelled_before_it_begins_leaves_its_workers_idle() -> None:
    """A recovery cancels groups that have just started; workers that idle get no slots."""
    pool = pool_of([Worker(), Worker()], [])
    how = Play(0, RolloutConfig(num_samples=4), None, frozenset(), False, {}, {}, 1, 0)

    async def run() -> None:
        await pool.start()
        playing = asyncio.create_task(pool.play(how, TASKS, lambda _: None))
        await asyncio.sleep(0)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        assert [slot.num_pulling for slot in pool._slots] == [0, 0]
        await pool.stop()

    asyncio.run(run())
