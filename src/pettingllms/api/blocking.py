"""Calls that block until they are done, also in a notebook, whose thread runs an event loop."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from pettingllms.errors import ConfigError
from pettingllms.registry import files_being_loaded
from pettingllms.runs.interrupt import interrupt_thread

ResultT = TypeVar("ResultT")


def run_blocking(function: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
    """The function's result. Where an event loop is running already, the function runs on a thread
    with an event loop that is free, and Ctrl-C (a notebook's stop button) is passed on to it."""
    check_not_loading()
    if _has_running_loop():
        return _on_thread(lambda: function(*args, **options))
    return function(*args, **options)


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_not_loading() -> None:
    """Raise ConfigError in a script that is being loaded for one of its classes, as by `resume`."""
    if files := files_being_loaded():
        guard = 'put the call under `if __name__ == "__main__":`'
        raise ConfigError(
            str(files[-1]), [f"starts a run while it is loaded for one of its classes; {guard}"]
        )


def _on_thread(function: Callable[[], ResultT]) -> ResultT:
    results: list[ResultT] = []
    errors: list[BaseException] = []
    context, done = contextvars.copy_context(), threading.Event()

    def run() -> None:
        try:
            results.append(context.run(function))
        except BaseException as error:  # noqa: BLE001 - raised again on the caller's thread
            errors.append(error)
        done.set()

    thread = threading.Thread(target=run, name="pettingllms-call", daemon=True)
    thread.start()
    while not done.is_set():
        try:
            done.wait()  # a join that is interrupted takes the thread for ended (bpo-45274)
        except KeyboardInterrupt:
            if not interrupt_thread(thread):
                raise
    if errors:
        raise errors[0]
    return results[0]
