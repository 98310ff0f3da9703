"""Progress of an API call: the user's callbacks, or printed lines."""

from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.runs.callbacks import Callback, Callbacks


class PrintProgress(Callback):
    """Print every message and one line per step. API calls use this callback by default."""

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        parts = [f"step {step}"]
        for role, numbers in metrics.get("roles", {}).items():
            shown = [f"reward {numbers['reward']:+.3f}"] if "reward" in numbers else []
            shown += [f"success {numbers['success']:.0%}"] if "success" in numbers else []
            parts.append(" ".join([role, *shown]))
        print("  ".join(parts), flush=True)  # noqa: T201 - its purpose

    def on_message(self, text: str) -> None:
        print(text, flush=True)  # noqa: T201


def progress_callbacks(callbacks: Sequence[Callback] | None) -> Callbacks:
    """The given callbacks as one; None prints progress, and an empty list is silent."""
    return Callbacks([PrintProgress()] if callbacks is None else callbacks)
