"""Streams to engines that die, hang or fail on the way; a learner that dies or moves on."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

import ray
from ray.exceptions import RayActorError

from pettingllms.cluster.engines import Engines
from pettingllms.cluster.reservation import local_places
from pettingllms.cluster.weight_transfer import Streamed, WeightTransfer
from pettingllms.config import InferenceConfig
from pettingllms.errors import ClusterError, LearnerError, LearnerLostError
from pettingllms.inference.engines.base import EngineSpec


class Remote:
    """A method of an actor."""

    def __init__(self, call: Any) -> None:
        self.remote = call


class Engine:
    """An actor whose calls fail with the errors that it was given, one after another."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.versions: list[int] = []
        self.links: list[Any] = []
        self.start, self.join_stream, self.receive_weights, self.versions_of = map(
            Remote, (self._start, self._join, self._receive, self._versions)
        )

    async def _start(self) -> None: ...

    async def _join(self, link: Any) -> None:
        self.links.append(link)

    async def _receive(self, policy: str, version: int, manifest: Any) -> None:
        assert (policy, manifest) == ("p", "manifest")
        if self.errors:
            raise self.errors.pop(0)
        self.versions.append(version)

    async def _versions(self) -> dict[str, int]:
        return {"p": self.versions[-1]}


class Sender:
    """A learner."""

    def __init__(self) -> None:
        self.weights = "first"
        self.error: Exception | None = None
        self.hangs = False
        self.num_links = 0

    async def rendezvous(self) -> str:
        self.num_links += 1
        return f"file://{self.num_links}"

    async def call(self, method: str, *args: Any) -> Any:
        if method == "send" and self.hangs:
            await asyncio.sleep(60)
        if method == "send" and self.error is not None:
            raise self.error
        return {"manifest": "manifest", "send": self.weights, "weight_hash": self.weights}.get(
            method
        )


def engines_of(monkeypatch: Any, first: list[Any], later: list[Any], restarts: int = 3) -> Any:
    made = iter([*first, *later])
    monkeypatch.setattr(Engines, "_create", lambda self, spec, place: next(made))
    monkeypatch.setattr(ray, "kill", lambda actor: None)
    spec = EngineSpec(Path("m"), InferenceConfig(), ("p",))
    return Engines([spec] * len(first), local_places(len(first)), restarts, lambda text: None)


def transfer_from(sender: Sender, timeout: float = 60) -> WeightTransfer:
    return WeightTransfer(sender, "float32", 2, timeout)  # type: ignore[arg-type]


def test_all_engines_join_once_and_get_every_version(monkeypatch: Any) -> None:
    sender, actors = Sender(), [Engine(), Engine()]
    engines, transfer = engines_of(monkeypatch, actors, []), transfer_from(sender)
    for version in (1, 2):
        new = Streamed(version, transfer)
        asyncio.run(engines.publish("p", new))
        assert new.weight_hash == "first"
    assert [actor.versions for actor in actors] == [[1, 2], [1, 2]]
    assert sender.num_links == 1
    assert [(link.first, link.num_members) for a in actors for link in a.links] == [(1, 5), (3, 5)]


def test_an_engine_that_dies_is_restarted_and_all_get_the_weights_again(monkeypatch: Any) -> None:
    sender, dead, other, new = Sender(), Engine(RayActorError()), Engine(), Engine()
    engines = engines_of(monkeypatch, [dead, other], [new])
    asyncio.run(engines.publish("p", Streamed(1, transfer_from(sender))))
    assert [replica.actor for replica in engines.replicas] == [new, other]
    assert new.versions[-1] == other.versions[-1] == 1
    assert new.links[-1].num_members == 5  # with the other one


def test_a_failed_worker_gets_the_weights_again_without_a_restart(monkeypatch: Any) -> None:
    sender, broken, other = Sender(), Engine(RuntimeError("bad tensor")), Engine()
    engines = engines_of(monkeypatch, [broken, other], [])
    asyncio.run(engines.publish("p", Streamed(1, transfer_from(sender))))
    assert broken.versions == [1]
    assert sender.num_links == 2  # the old group was closed


def test_a_worker_that_always_fails_stops_the_run(monkeypatch: Any) -> None:
    broken = Engine(*[RuntimeError("bad tensor")] * 9)
    engines = engines_of(monkeypatch, [broken], [], restarts=1)
    with pytest.raises(ClusterError, match=r"in 2 attempts \(cluster.max_restarts\).*bad tensor"):
        asyncio.run(engines.publish("p", Streamed(1, transfer_from(Sender()))))
    assert broken.versions == []


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (LearnerLostError("rank 0 died"), LearnerLostError, "rank 0 died"),
        (LearnerError("a defect"), LearnerError, "a defect"),
    ],
)
def test_a_learner_that_fails_stops_the_run(
    error: Any, expected: Any, message: str, monkeypatch: Any
) -> None:
    sender = Sender()
    sender.error = error
    engines = engines_of(monkeypatch, [Engine()], [])
    with pytest.raises(expected, match=message):
        asyncio.run(engines.publish("p", Streamed(1, transfer_from(sender))))


def test_a_transfer_that_hangs_stops_the_run(monkeypatch: Any) -> None:
    sender = Sender()
    sender.hangs = True
    engines = engines_of(monkeypatch, [Engine()], [])
    with pytest.raises(ClusterError, match=r"within 0.05 s \(cluster.transfer_timeout\)"):
        asyncio.run(engines.publish("p", Streamed(1, transfer_from(sender, 0.05))))


def test_an_engine_that_restarts_later_gets_the_weights_of_the_learner(monkeypatch: Any) -> None:
    """Once the learner was updated, they are those of the next version."""
    sender, first, second, third = Sender(), Engine(), Engine(), Engine()
    engines = engines_of(monkeypatch, [first], [second, third])
    asyncio.run(engines.publish("p", Streamed(4, transfer_from(sender))))
    asyncio.run(engines._replaced(0, RayActorError()))
    assert second.versions == [4]
    sender.weights = "second"
    asyncio.run(engines._replaced(0, RayActorError()))
    assert third.versions == [5]


def test_weights_that_change_while_engines_connect_get_their_own_version(
    monkeypatch: Any,
) -> None:
    """The learner may begin to train between the question for its hash and the transfer."""

    class Learns(Sender):
        async def call(self, method: str, *args: Any) -> Any:
            if method == "join_stream" and self.num_links == 2:
                self.weights = "second"
            return await super().call(method, *args)

    sender, first, second = Learns(), Engine(), Engine()
    engines = engines_of(monkeypatch, [first], [second])
    asyncio.run(engines.publish("p", Streamed(4, transfer_from(sender))))
    asyncio.run(engines._replaced(0, RayActorError()))
    assert sender.weights == "second"
    assert second.versions[-1] == 5


def test_a_replacement_that_dies_while_it_starts_is_replaced(monkeypatch: Any) -> None:
    first, last = Engine(), Engine()
    dying = SimpleNamespace(start=Remote(_die))
    engines = engines_of(monkeypatch, [first], [dying, last])
    asyncio.run(engines._replaced(0, RayActorError()))
    assert engines.replicas[0].actor is last
    assert engines.replicas[0].num_restarts == 2
    engines = engines_of(monkeypatch, [first], [dying, dying], restarts=2)
    with pytest.raises(ClusterError, match="died 3 times"):
        asyncio.run(engines._replaced(0, RayActorError()))


def test_a_replacement_whose_stream_breaks_is_replaced(monkeypatch: Any) -> None:
    broken = RuntimeError("connection closed by peer")
    first, second, third = Engine(), Engine(broken), Engine()
    engines = engines_of(monkeypatch, [first], [second, third])
    asyncio.run(engines.publish("p", Streamed(4, transfer_from(Sender()))))
    asyncio.run(engines._replaced(0, RayActorError()))
    assert engines.replicas[0].actor is third
    assert third.versions == [4]
    engines = engines_of(monkeypatch, [Engine()], [Engine(broken), Engine(broken)], restarts=2)
    asyncio.run(engines.publish("p", Streamed(4, transfer_from(Sender()))))
    with pytest.raises(ClusterError, match=r"died 3 times.*no weights of 'p': connection closed"):
        asyncio.run(engines._replaced(0, RayActorError()))


def test_a_replacement_that_gets_no_weights_is_killed(monkeypatch: Any) -> None:
    """It would keep its GPUs, so that no other replacement could start on them."""
    sender, first, new = Sender(), Engine(), Engine()
    engines = engines_of(monkeypatch, [first], [new])
    asyncio.run(engines.publish("p", Streamed(1, transfer_from(sender))))
    killed: list[Any] = []
    monkeypatch.setattr(ray, "kill", killed.append)
    sender.error = LearnerLostError("rank 0 died")
    with pytest.raises(LearnerLostError):
        asyncio.run(engines._replaced(0, RayActorError()))
    assert killed == [first, new]


async def _die() -> None:
    raise RayActorError


def test_a_link_made_during_a_restart_does_not_restart_the_replacement(monkeypatch: Any) -> None:
    """A worker that starts while an engine restarts knows the dead actor, not its successor."""
    first, second, third = Engine(), Engine(), Engine()
    engines = engines_of(monkeypatch, [first], [second, third])

    async def run() -> Any:
        started = asyncio.Event()
        monkeypatch.setattr(second, "start", Remote(started.wait))
        restart = asyncio.create_task(engines._replaced(0, RayActorError()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ((actor, generation),) = engines.links(["p"]).actors
        assert actor is first
        started.set()
        await restart
        return await engines.replacement(0, generation, RayActorError())

    actor, generation = asyncio.run(run())
    assert actor is second
    assert generation == 1
    assert engines.replicas[0].num_restarts == 1


def test_weights_published_during_a_restart_do_not_disturb_it(monkeypatch: Any) -> None:
    """A snapshot may be added or dropped while a replacement gets the weights of all policies."""
    sender, first, second = Sender(), Engine(), Engine()
    engines = engines_of(monkeypatch, [first], [second])
    transfer = transfer_from(sender)

    async def receive(policy: str, version: int, manifest: Any) -> None:
        second.versions.append(version)
        engines._published["p@1"] = Streamed(1, transfer)

    async def run() -> None:
        await engines.publish("p", Streamed(4, transfer))
        monkeypatch.setattr(second, "receive_weights", Remote(receive))
        await engines._replaced(0, RayActorError())

    asyncio.run(run())
    assert engines.replicas[0].actor is second


class Waits(Sender):
    """A learner that waits for members of its group as long as the link allows."""

    async def call(self, method: str, *args: Any) -> Any:
        if method == "join_stream" and self.num_links == 1:
            await asyncio.sleep(args[0].timeout)
            raise LearnerError("a member did not join")
        return await super().call(method, *args)


def test_an_engine_that_dies_before_it_joins_is_restarted(monkeypatch: Any) -> None:
    sender, dead, new = Waits(), Engine(), Engine()
    monkeypatch.setattr(dead, "join_stream", Remote(_dies_at_join))
    engines = engines_of(monkeypatch, [dead], [new])
    asyncio.run(engines.publish("p", Streamed(1, transfer_from(sender, 0.5))))
    assert new.versions[-1] == 1


async def _dies_at_join(_: Any) -> None:
    raise RayActorError
