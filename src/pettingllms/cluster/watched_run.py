"""A run's coroutine under watch: a lost cluster and errors of Ray become errors of ours.

Without its head or its process on this machine (raylet), Ray starts no actor, so that a run which
replaces a lost one would wait for ever.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from pettingllms.cluster.failures import explained, nodes_within
from pettingllms.config import ClusterConfig
from pettingllms.errors import ClusterError

PROBE_SECONDS = 5.0
LOST_SECONDS = 30.0
"""Ray itself ends this process, without a message to the user, a minute after it lost the head."""
STOP_SECONDS = 15.0
ResultT = TypeVar("ResultT")
Notify = Callable[[str], None]


def run_watched(
    run: Coroutine[Any, Any, ResultT], config: ClusterConfig, notify: Notify
) -> ResultT:
    """`asyncio.run` for a coroutine that uses Ray."""
    return asyncio.run(_watched(run, config, notify))


async def _watched(
    run: Coroutine[Any, Any, ResultT], config: ClusterConfig, notify: Notify
) -> ResultT:
    try:
        return await _while_ray_lives(run, config, notify)
    except RayError as error:
        raise await explained(error, "a process of the run") from error


async def _while_ray_lives(
    run: Coroutine[Any, Any, ResultT], config: ClusterConfig, notify: Notify
) -> ResultT:
    running = asyncio.create_task(run)
    watch = asyncio.create_task(_why_lost(bool(config.address)))
    try:
        await asyncio.wait([running, watch], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        text = watch.result()
        notify(text)  # at once, because Ray may end this process during the clean-up
    finally:
        watch.cancel()
        running.cancel()
    with suppress(TimeoutError, asyncio.CancelledError, RayError):
        await asyncio.wait_for(running, STOP_SECONDS)
    raise ClusterError(text)


async def _why_lost(is_shared: bool) -> str:
    """Return a message once Ray's head has not answered for LOST_SECONDS, or once Ray's own process
    on this machine is gone. `is_shared`: the cluster was there before the run."""
    context = ray.get_runtime_context()
    address, here = context.gcs_address, context.get_node_id()
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    silent = 0.0
    """Seconds of probes that failed. This process may have been busy for longer during one."""
    again = "start the cluster again and resume the run" if is_shared else "resume the run"
    while silent < LOST_SECONDS:
        start = loop.time()
        await asyncio.sleep(PROBE_SECONDS)
        reached = False
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PROBE_SECONDS):
                _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            reached = True
            nodes = await nodes_within(PROBE_SECONDS)
            if nodes is not None and here not in {node.id for node in nodes}:
                return f"Ray's process on this machine (raylet) died; {again}"
        silent = 0.0 if reached else silent + min(loop.time() - start, 2 * PROBE_SECONDS)
    stopped = (
        "its machine, its network or `ray start --head` there stopped"
        if is_shared
        else "its process (gcs_server) on this machine died or hangs"
    )
    return (
        f"the head of the Ray cluster, {address}, has not accepted a connection for "
        f"{LOST_SECONDS:g} s: {stopped}; {again}"
    )
