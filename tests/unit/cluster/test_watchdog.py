"""A learner that hangs is reported and then stops the run; one that makes progress does not."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.exceptions import ActorDiedError, RayTaskError

from pettingllms.cluster import failures, watchdog
from pettingllms.cluster.nodes import ActorPlace, Health, Node, health, log_of
from pettingllms.cluster.watchdog import Watchdog
from pettingllms.errors import ClusterError, EpisodesLostError, LearnerError

NODES = [Node("n1", "10.0.0.1"), Node("n2", "10.0.0.2")]
PLACES = [
    ActorPlace(node, host, pid, Path("log"))
    for node, host, pid in zip(NODES, ("head", "worker"), (11, 22), strict=True)
]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> dict[str, Health]:
    """What nodes tell about their processes; a node without an entry does not answer."""
    told: dict[str, Health] = {}

    async def on_node(node: Node, function: Any, *args: Any) -> Any:
        if function is health:
            if node.id not in told:
                raise TimeoutError
            return told[node.id]
        return [f"stack of {node.address}"] if function is log_of else None

    async def nodes_within(_: float) -> list[Node]:
        return NODES

    for module in (watchdog, failures):
        monkeypatch.setattr(module, "on_node", on_node)
    monkeypatch.setattr(failures, "nodes_within", nodes_within)
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.2)
    return told


def watching(bound: float) -> tuple[Watchdog, list[str]]:
    said: list[str] = []
    made = Watchdog(["a"], bound)
    made.places, made.notify = PLACES, said.append
    return made, said


async def never() -> None:
    await asyncio.sleep(60)


async def answer(value: Any, seconds: float = 0.0) -> Any:
    await asyncio.sleep(seconds)
    if isinstance(value, BaseException):
        raise value
    return value


def test_answers_are_in_the_order_of_ranks() -> None:
    made, said = watching(60)
    asked = [answer("0", 0.1), answer("1")]
    assert asyncio.run(made.answers(asked, "train")) == ["0", "1"]
    assert said == []


def test_a_node_that_misses_a_question_does_not_stop_a_long_step(quiet: dict[str, Health]) -> None:
    """The rank was at work a moment before, so it has not been quiet for the bound."""
    made, _ = watching(1.2)

    async def step() -> str:
        quiet["n1"] = Health(0.0, "")
        await asyncio.sleep(1.5)
        del quiet["n1"]
        await asyncio.sleep(0.4)
        quiet["n1"] = Health(0.0, "")
        return "done"

    assert asyncio.run(made.answers([step()], "train")) == ["done"]


def test_a_rank_that_hangs_is_reported_and_stops_the_run(quiet: dict[str, Health]) -> None:
    quiet["n2"] = Health(100.0, "stopped")
    made, said = watching(0.6)
    with pytest.raises(ClusterError) as caught:
        asyncio.run(made.answers([answer(1), never()], "train"))
    assert "the learner of 'a' has not answered 'train'" in said[0]
    assert "rank 1, process 22 on worker (10.0.0.2), stopped" in said[0]
    assert "rank 0" not in said[0], "it has answered"
    assert "cluster.learner_timeout = 0.6" in str(caught.value)
    assert "stack of 10.0.0.2" in str(caught.value)


def test_a_long_step_with_progress_goes_on(quiet: dict[str, Health]) -> None:
    quiet |= {node.id: Health(0.0, "") for node in NODES}
    made, said = watching(0.3)
    assert asyncio.run(made.answers([answer(1, 1.5), answer(2, 1.5)], "train")) == [1, 2]
    assert said == []


def test_one_rank_with_progress_keeps_the_others_waiting(quiet: dict[str, Health]) -> None:
    quiet |= {"n1": Health(99.0, ""), "n2": Health(0.0, "")}
    made, said = watching(0.3)
    assert asyncio.run(made.answers([answer(1, 1.0), answer(2, 1.0)], "train")) == [1, 2]
    assert said == []


def test_a_node_that_does_not_answer_counts_as_without_progress(quiet: dict[str, Health]) -> None:
    assert quiet == {}
    made, _ = watching(0.4)
    with pytest.raises(ClusterError, match="its node does not answer"):
        asyncio.run(made.answers([never(), never()], "train"))


def test_the_rank_that_died_is_named_before_those_that_noticed(quiet: dict[str, Health]) -> None:
    assert quiet == {}
    died = ActorDiedError()
    died.error_msg = "The actor died.\n\tpid: 22\n\tip: 10.0.0.2\nexit detail"
    lost = RuntimeError("Connection closed by peer [10.0.0.2]")
    noticed = RayTaskError("call", "trace", lost, "title", 11, "10.0.0.1").as_instanceof_cause()
    made, _ = watching(60)
    with pytest.raises(ClusterError) as caught:
        asyncio.run(made.answers([answer(noticed), answer(died, 0.1)], "train"))
    text = str(caught.value)
    assert text.startswith("rank 1 of the learner of 'a', in 'train', failed (process 22 on the")
    assert "stack of 10.0.0.2" in text
    assert "Connection closed" not in text


def test_errors_of_ours_come_out_as_they_are(quiet: dict[str, Health]) -> None:
    assert quiet == {}
    ours = LearnerError("the batch is empty")
    task = RayTaskError("call", "trace", ours, "title", 11, "10.0.0.1").as_instanceof_cause()
    made, _ = watching(60)
    with pytest.raises(LearnerError) as caught:
        asyncio.run(made.answers([answer(task)], "train"))
    assert str(caught.value) == "the batch is empty"


def test_a_rank_without_its_episodes_ends_the_wait_of_the_others(
    quiet: dict[str, Health],
) -> None:
    assert quiet == {}
    ours = EpisodesLostError("episodes of this step were lost")
    task = RayTaskError("call", "trace", ours, "title", 11, "10.0.0.1").as_instanceof_cause()
    made, _ = watching(60)
    with pytest.raises(EpisodesLostError):
        asyncio.run(made.answers([answer(task), never()], "train"))
    assert made.has_lost_rank, "the other rank waits in a collective operation"


def test_an_error_of_a_library_has_its_cause_its_place_and_its_last_lines(
    quiet: dict[str, Health],
) -> None:
    assert quiet == {}
    place = "ray::NodeRank.call() (pid=11, ip=10.0.0.1, actor_id=1)"
    trace = f'{place}\n  File "x.py", line 3, in step\n    loss()\nValueError: bad'
    error = RayTaskError("call", trace, ValueError("bad"), "title", 11, "10.0.0.1")
    text = str(asyncio.run(failures.explained(error.as_instanceof_cause(), "rank 0")))
    assert text.startswith("rank 0 failed (process 11 on the node 10.0.0.1): ValueError: bad")
    assert "x.py" in text
    assert "stack of 10.0.0.1" in text


def test_a_lost_node_is_named(quiet: dict[str, Health], monkeypatch: pytest.MonkeyPatch) -> None:
    assert quiet == {}

    async def nodes_within(_: float) -> list[Node]:
        return NODES[:1]

    monkeypatch.setattr(failures, "nodes_within", nodes_within)
    died = ActorDiedError()
    died.error_msg = "The actor died.\n\tpid: 22\n\tip: 10.0.0.2\n"
    assert "its node 10.0.0.2 left the cluster" in str(asyncio.run(failures.explained(died, "it")))
