"""Callbacks: user code that training, SFT and DPO notify of their progress."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pettingllms.registry import CALLBACKS

__all__ = ["Callback", "Callbacks"]


class Callback:
    """Base class of callbacks. Every hook does nothing; override the ones you need.

    Pass a callback to `train`, `sft` or `dpo`, or name its class in `log.callbacks`, for example
    "my_callback.py:MyCallback". A named class is created without arguments. An exception in a hook
    stops the run.
    """

    def on_train_begin(self) -> None:
        """Called once, before anything starts."""

    def on_train_end(self) -> None:
        """Called once at the end, also if the run was stopped or failed."""

    def on_phase(self, text: str) -> None:
        """Called when a new phase of a step begins, such as "sampling"."""

    def on_progress(self, done: int, total: int) -> None:
        """Called when a part of the current phase is done."""

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Called after every step of `train` with its nested metrics (`runs.metrics.Metrics`)."""

    def on_message(self, text: str) -> None:
        """Called with messages for the user, such as alarms."""


class Callbacks(Callback):
    """A list of callbacks as one; each hook is called on all of them, in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = list(callbacks)

    def on_train_begin(self) -> None:
        for callback in self.callbacks:
            callback.on_train_begin()

    def on_train_end(self) -> None:
        for callback in self.callbacks:
            callback.on_train_end()

    def on_phase(self, text: str) -> None:
        for callback in self.callbacks:
            callback.on_phase(text)

    def on_progress(self, done: int, total: int) -> None:
        for callback in self.callbacks:
            callback.on_progress(done, total)

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        for callback in self.callbacks:
            callback.on_step_end(step, metrics)

    def on_message(self, text: str) -> None:
        for callback in self.callbacks:
            callback.on_message(text)


@contextmanager
def running_callbacks(callback: Callback | None, names: Sequence[str]) -> Iterator[Callbacks]:
    """A callback together with those that `log.callbacks` names, from `on_train_begin` to
    `on_train_end`."""
    given = [callback] if callback is not None else []
    callbacks = Callbacks([*given, *(CALLBACKS.load(name)() for name in names)])
    callbacks.on_train_begin()
    try:
        yield callbacks
    finally:
        callbacks.on_train_end()
