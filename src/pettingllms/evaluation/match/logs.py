"""Log files of a match: the result of each game, its moves, and all prompts and replies.

Lines are flushed at once, so an interrupted match keeps its log. Text from models and servers is
indented, terminal control characters are escaped, and API keys are redacted.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TextIO

from pettingllms.errors import describe
from pettingllms.inference.http import JsonRenderer
from pettingllms.types import Failed, Ids, Renderer, Sample, Sampler, SampleRequest

STAMP = "%Y%m%d_%H%M%S"
HIDDEN = "[key]"


class Logs:
    """The log files of one match."""

    def __init__(
        self, results: TextIO, conversation: TextIO, moves: TextIO, secrets: Sequence[str]
    ) -> None:
        self._results = results
        self._conversation = conversation
        self._moves = moves
        self._secrets = [secret for secret in secrets if secret]
        self.num_replies = self.num_errors = 0
        self.reply_seconds = 0.0

    def result(self, text: str) -> None:
        """Log one line of the results."""
        self._write(self._results, text)

    def exchange(self, title: str, parts: Sequence[tuple[str, str]]) -> None:
        """Log one request: a title, then each part under its name."""
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        body = "".join(f"  {name}:\n{_indented(text)}\n" for name, text in parts)
        self._write(self._conversation, f"--- {now} {title}\n{body}")

    def game(self, title: str, moves: Iterable[tuple[str, str]]) -> None:
        """Log the moves of one game: a title, then each move and the state after it."""
        body = "".join(f"  {name}:\n{_indented(text)}\n" for name, text in moves)
        self._write(self._moves, f"--- {title}\n{body}")

    def _write(self, file: TextIO, text: str) -> None:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        file.write("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text))
        file.write("\n")
        file.flush()


@contextmanager
def open_logs(
    folder: Path, key_variables: Sequence[str]
) -> Iterator[tuple[Logs, tuple[Path, ...]]]:
    """Create the log files of a match, named by the second so that none is overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        stamp = datetime.now().astimezone().strftime(STAMP)
        results = folder / f"game_results_{stamp}.log"
        conversation = folder / f"llm_conversation_{stamp}.log"
        moves = folder / f"game_moves_{stamp}.log"
        try:
            first = results.open("x", encoding="utf-8")
            break
        except FileExistsError:
            time.sleep(0.1)
    with (
        first,
        conversation.open("w", encoding="utf-8") as second,
        moves.open("w", encoding="utf-8") as third,
    ):
        secrets = [os.environ.get(variable, "") for variable in key_variables]
        yield Logs(first, second, third, secrets), (results, moves, conversation)


class LoggedSampler:
    """A sampler whose prompts, replies, errors and times are logged."""

    def __init__(self, sampler: Sampler, renderer: Renderer, name: str, logs: Logs) -> None:
        self._sampler = sampler
        self._renderer = renderer
        self._name = name
        self._logs = logs

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        """Sample, and log the exchange."""
        with _Exchange(request, self._renderer, self._name, self._logs) as exchange:
            exchange.results = await self._sampler.sample(request)
        return exchange.results


class _Exchange:
    """One request in progress. It logs errors without handling them."""

    def __init__(self, request: SampleRequest, renderer: Renderer, name: str, logs: Logs) -> None:
        self.results: Sequence[Sample | Failed] = ()
        self._request = request
        self._renderer = renderer
        self._name = name
        self._logs = logs
        self._start = time.perf_counter()

    def __enter__(self) -> "_Exchange":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = time.perf_counter() - self._start
        parts = _prompt_parts(self._renderer, self._request.prompt_ids)
        for result in self.results:
            self._logs.num_replies += 1
            self._logs.reply_seconds += seconds
            if isinstance(result, Failed):
                self._logs.num_errors += 1
                parts.append((f"error after {seconds:.2f} s", result.reason))
            else:
                truncated = ", truncated at the token limit" if result.finish == "length" else ""
                reply = self._renderer.decode(result.ids)
                parts.append((f"reply after {seconds:.2f} s{truncated}", reply))
        if error is not None:
            self._logs.num_errors += 1
            parts.append((f"error after {seconds:.2f} s", _reason(error)))
        self._logs.exchange(f"{self._name} as {self._request.role}, {self._request.task_id}", parts)


def _reason(error: BaseException) -> str:
    """Describe an error; a cancelled request timed out."""
    cancelled = type(error).__name__ == "CancelledError"
    return "timed out: no reply within --seconds" if cancelled else describe(error)


def _prompt_parts(renderer: Renderer, ids: Ids) -> list[tuple[str, str]]:
    text = renderer.decode(ids)
    if isinstance(renderer, JsonRenderer):
        return [(str(part["role"]), str(part["content"])) for part in json.loads(text)]
    return [("prompt", text)]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in (text.splitlines() or [""]))
