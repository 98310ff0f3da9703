"""Callbacks of a call: the user's, or lines that are printed."""

from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.runs.callbacks import Callback


class PrintProgress(Callback):
    """Prints every message, and one line per step: the callback that calls use by default."""

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        parts = [f"step {step}"]
        for role, numbers in metrics.get("roles", {}).items():
            shown = [f"reward {numbers['reward']:+.3f}"] if "reward" in numbers else []
            shown += [f"success {numbers['success']:.0%}"] if "success" in numbers else []
            parts.append(" ".join([role, *shown]))
        print("  ".join(parts), flush=True)  # noqa: T201 - this is what it is for

    def notify(self, text: str) -> None:
        print(text, flush=True)  # noqa: T201


class Callbacks(Callback):
    """Several callbacks as one, called in their order."""

    def __init__(self, callbacks: Sequence[Callback] | None) -> None:
        """Without any list, progress is printed; an empty list is silent."""
        self._callbacks = [PrintProgress()] if callbacks is None else list(callbacks)

    def phase(self, text: str) -> None:
        for callback in self._callbacks:
            callback.phase(text)

    def progress(self, done: int, total: int) -> None:
        for callback in self._callbacks:
            callback.progress(done, total)

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        for callback in self._callbacks:
            callback.step(step, metrics)

    def notify(self, text: str) -> None:
        for callback in self._callbacks:
            callback.notify(text)
