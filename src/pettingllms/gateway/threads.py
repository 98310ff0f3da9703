"""Threads for what would block the event loop: parsing, rendering, tokenizing, encoding.

There are few, because each that runs Python delays the loop by one turn of the interpreter's lock.
Large requests share one, so that small ones never wait behind them.
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
    """The result of a function that runs in a thread, for a request of that size."""
    pool = _LARGE if num_bytes > LARGE_BYTES else _SMALL
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(pool, lambda: function(*args, **options))
