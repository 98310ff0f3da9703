"""Work that several processes do: in turn where they share a machine, else at once."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def each(works: Iterable[Coroutine[Any, Any, T]], at_once: bool) -> list[T]:
    """What each gives, in their order. In turn, nothing is begun before what is ahead has ended,
    and nothing after what failed."""
    if at_once:
        return list(await asyncio.gather(*works))
    return [await work for work in works]
