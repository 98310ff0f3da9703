"""Heartbeats: notice actors that no longer answer, such as a stopped process.

An actor that died fails its calls; one that hangs leaves them open for ever. So its owner asks for
a sign of life all the time, and kills it if there is none within a bound.
"""

import asyncio
from typing import Any

from pettingllms.cluster.failures import DEATHS
from pettingllms.errors import EngineDiedError

CHECKS = 10
"""Signs of life within the bound."""


async def until_silent(actor: Any, bound: float) -> Exception:
    """Wait until an actor has left a call open for `bound` seconds, which gives a TimeoutError, or
    until it is dead."""
    while True:
        answer = asyncio.ensure_future(actor.ping.remote())
        done, _ = await asyncio.wait([answer], timeout=bound)
        if not done:
            answer.cancel()
            return TimeoutError(f"it has not answered for {bound:g} s (inference.engine_timeout)")
        error = answer.exception()
        if isinstance(error, (*DEATHS, EngineDiedError)):
            return error
        if error is not None:
            raise error
        await asyncio.sleep(bound / CHECKS)
