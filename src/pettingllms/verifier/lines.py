"""Score answers for a parent process: `python -m pettingllms.verifier.lines FOLDER`.

The parent is `judges.local_verifier`, and the protocol is that of `runtime.json_child`. Requests
that wait are scored in one forward pass. The process ends when its input does, so it never outlives
the run.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from pettingllms.types import Message, Reward, Scored
from pettingllms.verifier.classifier import Question, load_verifier

BATCH = 64
"""Answers per forward pass."""


def run(folder: Path, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Load a verifier and answer requests until the input ends."""
    verifier = load_verifier(folder)
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in requests:
            waiting.put(line)
        waiting.put(b"")

    threading.Thread(target=read, daemon=True).start()
    ended = False
    while not ended:
        lines = [waiting.get()]
        while len(lines) < BATCH and not waiting.empty():
            lines.append(waiting.get())
        ended = b"" in lines
        asked = [json.loads(line) for line in lines if line]
        for one, reward in zip(asked, _scores(verifier.score, asked), strict=True):
            answers.write(json.dumps(_answer(one["id"], reward)).encode() + b"\n")
        answers.flush()


def _scores(score: Any, asked: Sequence[dict[str, Any]]) -> list[Reward]:
    questions: list[Question] = [
        ([Message(m["role"], m["content"]) for m in one["messages"]], one["answer"])
        for one in asked
    ]
    found: list[Reward] = score(questions) if questions else []
    return found


def _answer(number: int, reward: Reward) -> dict[str, Any]:
    if isinstance(reward, Scored):
        return {"id": number, "result": reward.value}
    return {"id": number, "error": reward.reason}


def main() -> None:
    """Answer on the original stdout; whatever libraries print goes to stderr."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        run(Path(sys.argv[1]), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
