"""Who is told how long work goes: training, imitation, learning from pairs."""

from collections.abc import Mapping
from typing import Any

__all__ = ["Callback"]


class Callback:
    """Hears everything and says nothing: override what you want to be told."""

    def phase(self, text: str) -> None:
        """What is being done now."""

    def progress(self, done: int, total: int) -> None:
        """How much of the phase is done."""

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """What a step came to."""

    def notify(self, text: str) -> None:
        """A message that stays."""
