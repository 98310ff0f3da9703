"""What Ray's errors mean for a user: what happened, on which node, and the last lines of its log.

Ray's messages are tracebacks of Ray; the useful part of one is the cause and the place.
"""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

from ray.exceptions import (
    ActorUnschedulableError,
    LocalRayletDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
)

from pettingllms.cluster.nodes import ActorPlace, Node, alive_nodes, log_of, on_node
from pettingllms.errors import ClusterError, PettingError, describe

ASK_SECONDS = 10.0
DEATHS = (RayActorError, OutOfMemoryError)
"""What a call raises whose actor died."""
TRACE_LINES = 6
ResultT = TypeVar("ResultT")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"^\s*(?:ip:|.*\bip=)\s*([0-9a-fA-F.:]+)", re.MULTILINE)
_PID = re.compile(r"^\s*(?:pid:|.*\bpid=)\s*(\d+)", re.MULTILINE)


async def explained(error: RayError, who: str, place: ActorPlace | None = None) -> PettingError:
    """An error of ours for one of Ray's. `who` is what failed, such as "rank 0 of a learner", and
    `place` is where it was; by default, what Ray's message tells."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, RayError):
        return await explained(cause, who, place)
    if isinstance(cause, PettingError):
        return cause
    text = _COLOR.sub("", str(error))
    address = place.node.address if place else _first(_ADDRESS, text)
    pid = place.pid if place else int(_first(_PID, text) or 0)
    where = f" (process {pid} on the node {address})" if address and pid else ""
    nodes = await nodes_within(ASK_SECONDS)
    lost = nodes is not None and address and address not in {node.address for node in nodes}
    what = f"its node {address} left the cluster" if lost else reason(error)
    lines = [] if lost else await _log(address, pid, nodes or [])
    shown = "".join(f"\n    {line}" for line in [*_trace(error), *lines])
    return ClusterError(f"{who} failed{where}: {what}{shown and '; the last it wrote:'}{shown}")


def reason(error: RayError) -> str:
    """What happened, in a few words."""
    if isinstance(error, RayTaskError):
        return describe(error.cause)
    if isinstance(error, OutOfMemoryError):
        return "Ray killed it because the memory of its node was nearly full"
    if isinstance(error, LocalRayletDiedError):
        return "Ray's own process (raylet) on this machine died"
    if isinstance(error, NodeDiedError):
        return "its node left the cluster"
    if isinstance(error, ActorUnschedulableError | RuntimeEnvSetupError):
        return f"Ray could not start it: {_sentence(error)}"
    if isinstance(error, RayActorError):
        return (
            "its process or its node died, or the connection to it is lost; a killed process "
            "often means too little memory, which `dmesg` on that machine shows"
        )
    return describe(error)


async def nodes_within(seconds: float) -> list[Node] | None:
    """The nodes of the cluster; None if the cluster does not answer in time."""
    return await _within(seconds, asyncio.to_thread(alive_nodes))


async def _log(address: str, pid: int, nodes: Sequence[Node]) -> list[str]:
    """The last lines of the log of a process; none if its node does not answer."""
    for node in nodes:
        if pid and node.address == address:
            found = await _within(ASK_SECONDS, on_node(node, log_of, pid))
            if found:
                return found
    return []


async def _within(seconds: float, asked: Awaitable[ResultT]) -> ResultT | None:
    with suppress(TimeoutError, RayError):
        return await asyncio.wait_for(asked, seconds)
    return None


def _trace(error: RayError) -> list[str]:
    if not isinstance(error, RayTaskError):
        return []
    lines = _COLOR.sub("", str(error)).splitlines()  # begins with the place, ends with the cause
    return [line.rstrip() for line in lines if line.strip(" ^~")][-TRACE_LINES - 1 : -1]


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1].rstrip(".,") if found else ""


def _sentence(error: RayError) -> str:
    return _COLOR.sub("", str(error)).strip().partition("\n")[0]
