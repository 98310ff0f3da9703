"""Threads for work that would block the event loop: parsing, rendering, tokenizing, encoding.

There are few, because each running thread delays the event loop by one GIL switch interval. Large
requests share one thread, so that small requests never wait for them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

LARGE_BYTES = 100_000
Params = ParamSpec("Params")
ResultT = TypeVar("ResultT")

_SMALL = ThreadPoolExecutor(2, "gateway")
_LARGE = ThreadPoolExecutor(1, "gateway-large")


async def off_loop(
    num_bytes: int,
    function: Callable[Params, ResultT],
    *args: Params.args,
    **options: Params.kwargs,
) -> ResultT:
    """Run a function in a thread and return its result. The size of the request picks the pool."""
    pool = _LARGE if num_bytes > LARGE_BYTES else _SMALL
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(pool, lambda: function(*args, **options))
