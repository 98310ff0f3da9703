"""Ctrl-C: the first one saves a run and stops it, the second one stops it immediately."""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")
_interrupts: dict[int, Callable[[], None]] = {}
"""By thread other than the main one, what Ctrl-C should do to the run on it."""


def stop_on_interrupt(notify: Callable[[str], None]) -> asyncio.Event:
    """An event that the first Ctrl-C sets; the second one raises KeyboardInterrupt."""
    stop = asyncio.Event()

    def interrupt() -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        notify("stopping: saving the run first; press Ctrl-C again to stop immediately")
        stop.set()

    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
    else:
        call = asyncio.get_running_loop().call_soon_threadsafe
        _interrupts[threading.get_ident()] = lambda: call(interrupt)  # type: ignore[assignment]
    return stop


def interrupt_thread(thread: threading.Thread) -> bool:
    """Pass Ctrl-C on to the run on a thread; False if no run on it can be interrupted now."""
    interrupt = _interrupts.get(thread.ident or 0)
    try:
        if interrupt is not None:
            interrupt()
    except RuntimeError:  # its event loop is closed
        return False
    return interrupt is not None


async def unless_stopped(stop: asyncio.Event, work: Awaitable[ResultT]) -> ResultT | None:
    """The result of an awaitable, or None if `stop` is set before it is done."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
