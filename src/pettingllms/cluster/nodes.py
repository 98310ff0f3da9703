"""The nodes of a Ray cluster: where an actor runs, its log, and small tasks on a given node.

A task on a node answers for an actor that is dead or hangs.
"""

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pettingllms.runtime.progress import quiet_seconds

TAIL_LINES = 12
TAIL_BYTES = 4096
STATES = {"T": "stopped", "Z": "dead", "D": "waits for a disk or the network"}
"""States of a process in /proc that explain why it does not go on."""
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster."""

    id: str
    address: str


@dataclass(frozen=True, slots=True)
class ActorPlace:
    """Where an actor runs, and the files that tell about it."""

    node: Node
    host: str
    pid: int
    log: Path | None
    """What its process wrote to stderr."""
    progress: Path | None = None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.node.address})"


@dataclass(frozen=True, slots=True)
class Health:
    """What a node tells about a process of it."""

    quiet: float
    """Seconds since its last progress."""
    state: str
    """Why it does not go on, or empty."""


def alive_nodes() -> list[Node]:
    """The nodes of the cluster, by address."""
    found = [Node(n["NodeID"], n["NodeManagerAddress"]) for n in ray.nodes() if n["Alive"]]  # type: ignore[no-untyped-call]
    return sorted(found, key=lambda node: (node.address, node.id))


async def on_node(node: Node, function: Callable[..., ResultT], *args: Any) -> ResultT:
    """Call a function in a process of a node."""
    pinned = NodeAffinitySchedulingStrategy(node.id, soft=False)
    task = ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=pinned)
    result: ResultT = await task.remote(*args)
    return result


def own_place() -> ActorPlace:
    """The place of the actor that calls this."""
    context = ray.get_runtime_context()
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    node = Node(context.get_node_id(), address)
    return ActorPlace(node, socket.gethostname(), os.getpid(), own_log())


def own_log(pid: int = 0) -> Path | None:
    """The file that the stderr of a Ray worker of this node goes to; by default, of this one."""
    ray_node: Any = ray._private.worker._global_node  # noqa: SLF001 - no public access
    folder = Path(ray_node.get_logs_dir_path())
    found = sorted(folder.glob(f"worker-*-{pid or os.getpid()}.err"))
    return found[-1] if found else None


def log_of(pid: int) -> list[str]:
    """The last lines that a Ray worker of this node wrote to stderr."""
    file = own_log(pid)
    if file is None:
        return []
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    told = [line for line in lines if line.strip() and not line.startswith(":")]  # Ray's marks
    return told[-TAIL_LINES:]


def health(place: ActorPlace) -> Health:
    """What this node tells about a process of it; runs on the node of the process."""
    try:
        stat = Path(f"/proc/{place.pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Health(0.0, "dead")
    state = STATES.get(stat.rpartition(") ")[2][:1], "")
    quiet = quiet_seconds(place.progress) if place.progress and place.progress.exists() else 0.0
    return Health(quiet, state)


def dump_stack(pid: int) -> None:
    """Let a process of this node write the stacks of its threads to its log."""
    os.kill(pid, signal.SIGUSR2)
