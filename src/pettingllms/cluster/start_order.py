"""The order in which engines and learners start."""

import asyncio
from collections.abc import Iterable
from typing import Any


async def start_all(
    engines: Iterable[Any], learners: Iterable[Any], loopback: bool, colocated: bool
) -> list[str]:
    """Start all processes; what users should know. `loopback`: all are on this machine.

    An engine measures the free memory of its GPUs when it starts. So colocated engines start first,
    and sleep while the learners that share their GPUs load.
    """
    engines, learners = list(engines), list(learners)
    if not colocated:
        starts = [*(one.start(loopback) for one in learners), *(one.start() for one in engines)]
        return list(filter(None, await asyncio.gather(*starts)))
    await asyncio.gather(*(one.start() for one in engines))
    await asyncio.gather(*(one.sleep() for one in engines))
    notices = await asyncio.gather(*(one.start(loopback) for one in learners))
    await asyncio.gather(*(one.wake() for one in engines))
    return list(filter(None, notices))
