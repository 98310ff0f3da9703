"""The work of both sides of a comparison: prompts, sizes and rewards. Imports no library.

A side makes a step, writes a line of JSON with the number of sampled tokens, and waits for a line
on stdin before the next step.
"""

import json
import os
import sys
import zlib
from typing import IO

SIZES = "TRL_COMPARE_SIZES"
"""Environment variable with the sizes of a step."""
NUM_PROMPTS, NUM_REPLIES, REPLY_TOKENS = map(int, os.environ.get(SIZES, "8,8,128").split(","))
"""Per step: prompts, replies to each, and tokens of a reply at most."""
LORA_RANK, LORA_ALPHA, LEARNING_RATE = 16, 32, 1e-5
SUBJECTS = ("river", "clock", "violin", "desert", "lighthouse", "bakery", "comet", "garden")


def prompts(num_steps: int) -> list[str]:
    """Distinct prompts for all steps."""
    return [
        f"Write a long story about a {SUBJECTS[at % len(SUBJECTS)]} and the number {at}. "
        "Describe the place, the people and their plans in many sentences."
        for at in range(num_steps * NUM_PROMPTS)
    ]


def reward(reply: str) -> float:
    """A reward that differs between replies and costs nothing to compute."""
    return zlib.crc32(reply.encode()) / 2**32


class Turns:
    """Take turns with the other side: report a step, then wait."""

    def __init__(self, num_steps: int) -> None:
        self._num_left = num_steps
        self._reports: IO[str] = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # output of libraries goes to stderr

    def report(self, num_tokens: int) -> None:
        """Report a finished step and wait for the next turn, unless it was the last step."""
        self._num_left -= 1
        self._reports.write(json.dumps({"num_tokens": num_tokens}) + "\n")
        self._reports.flush()
        if self._num_left and not sys.stdin.readline():
            raise SystemExit("the comparison has ended")
