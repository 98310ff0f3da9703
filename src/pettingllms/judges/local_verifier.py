"""A verifier from its folder, in a separate process that ends with the run; no port and no key."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from pettingllms.errors import LibraryError
from pettingllms.runtime.in_flight import InFlight, service_timeout
from pettingllms.runtime.json_child import JsonChild
from pettingllms.types import Failed, Message, Reward, Scored

FILES = ("verifier.json", "critic.safetensors")
"""What `pettingllms verifier train` writes."""
START_SECONDS = 300.0
"""Time in which the process must load its model."""
MAX_CONCURRENT = 256
"""Requests in the process; the time limit of others has not begun."""


class LocalVerifier:
    """Starts a process for the verifier of a folder with the first score."""

    def __init__(self, folder: Path, seconds: float = 60.0) -> None:
        self._folder = folder
        self._seconds = seconds
        self._in_flight = InFlight(MAX_CONCURRENT)
        self._child: JsonChild | None = None
        self._is_ready = False

    async def score(self, messages: Sequence[Message], answer: str) -> Reward:
        """The probability that an answer is correct."""
        chat = [{"role": m.speaker, "content": m.content} for m in messages]
        seconds = self._seconds if self._is_ready else START_SECONDS + self._seconds
        try:
            async with self._in_flight.place(), service_timeout(seconds):
                request = self._started().send("score", messages=chat, answer=answer)
                score = await asyncio.wrap_future(request)
        except LibraryError as error:
            return Failed(str(error), "judge")
        except TimeoutError:
            return Failed(f"verifier {self._folder}: no score within {seconds:g} s", "judge")
        self._is_ready = True
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            return Failed(f"verifier {self._folder}: no probability: {score!r:.100}", "judge")
        return Scored(float(score))

    async def close(self) -> None:
        """End the process."""
        if self._child is not None:
            await asyncio.to_thread(self._child.stop)
            self._child = None

    def _started(self) -> JsonChild:
        if self._child is None or not self._child.is_alive:
            words = [sys.executable, "-m", "pettingllms.verifier.lines", str(self._folder)]
            self._child = JsonChild(words, f"verifier {self._folder}")
        return self._child


def folder_problem(folder: Path) -> str:
    """Why a folder holds no verifier; empty if it does."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if not missing:
        return ""
    return (
        f"folder: {folder} has no {' and no '.join(missing)}, so it holds no verifier; create one "
        "with `pettingllms verifier train`"
    )
