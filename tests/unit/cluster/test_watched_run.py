"""Ray's errors become errors of ours, and a head that is lost ends the run with a message."""

import asyncio
import socket
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

pytest.importorskip("ray")

from ray.exceptions import RayTaskError

from pettingllms.cluster import failures, watched_run
from pettingllms.cluster.nodes import Node
from pettingllms.cluster.watched_run import run_watched
from pettingllms.config import ClusterConfig
from pettingllms.errors import ClusterError


async def value() -> int:
    return 5


async def forever() -> None:
    await asyncio.sleep(60)


def head_at(monkeypatch: pytest.MonkeyPatch, port: int, nodes: tuple[str, ...] = ("own",)) -> None:
    context = SimpleNamespace(gcs_address=f"127.0.0.1:{port}", get_node_id=lambda: "own")

    async def nodes_within(_: float) -> list[Node]:
        return [Node(name, "10.0.0.1") for name in nodes]

    monkeypatch.setattr(watched_run, "nodes_within", nodes_within)
    monkeypatch.setattr(watched_run.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(watched_run, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(watched_run, "LOST_SECONDS", 0.3)


def test_the_result_is_that_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as head:
        head_at(monkeypatch, head.getsockname()[1])
        assert run_watched(value(), ClusterConfig(), print) == 5
        assert run_watched(value(), ClusterConfig(address="auto"), print) == 5


def test_a_head_that_accepts_connections_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as head:
        head_at(monkeypatch, head.getsockname()[1])
        run_watched(asyncio.sleep(0.6), ClusterConfig(address="auto"), pytest.fail)


def test_a_run_that_was_busy_itself_did_not_lose_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as in the credit of a large batch, while the nodes were asked."""
    with closing(socket.create_server(("127.0.0.1", 0))) as head:
        head_at(monkeypatch, head.getsockname()[1])

        async def nodes_within(_: float) -> list[Node]:
            time.sleep(0.5)  # noqa: ASYNC251 - the event loop is busy
            return [Node("own", "10.0.0.1")]

        monkeypatch.setattr(watched_run, "nodes_within", nodes_within)
        run_watched(asyncio.sleep(1.5), ClusterConfig(address="auto"), pytest.fail)


def test_a_lost_head_ends_the_run_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as head:
        port = head.getsockname()[1]
    head_at(monkeypatch, port)
    said: list[str] = []
    with pytest.raises(ClusterError, match=rf"cluster, 127\.0\.0\.1:{port}, has not accepted"):
        run_watched(forever(), ClusterConfig(address="auto"), said.append)
    assert "resume" in said[0]


def test_a_local_head_that_is_lost_ends_the_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as head:
        port = head.getsockname()[1]
    head_at(monkeypatch, port)
    with pytest.raises(ClusterError, match=r"gcs_server.* on this machine died .*; resume the run"):
        run_watched(forever(), ClusterConfig(), lambda _: None)


def test_a_raylet_that_is_gone_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as head:
        head_at(monkeypatch, head.getsockname()[1], nodes=("other",))
        with pytest.raises(ClusterError, match=r"this machine \(raylet\) died; resume the run"):
            run_watched(forever(), ClusterConfig(), lambda _: None)


def test_an_error_of_ray_becomes_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nodes_within(_: float) -> list[Node]:
        return []

    head_at(monkeypatch, 9)

    async def fail() -> None:
        raise RayTaskError("f", "trace", ValueError("bad"), "title", 1, "10.0.0.9")

    monkeypatch.setattr(failures, "nodes_within", nodes_within)
    with pytest.raises(ClusterError, match="a process of the run failed: ValueError: bad"):
        run_watched(fail(), ClusterConfig(), print)
