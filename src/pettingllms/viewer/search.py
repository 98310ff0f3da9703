"""Search for words in the text of episodes, newest first, for a limited time per request.

A search reads the lines of frames, not their arrays. It needs no index of words: a later request
continues where an earlier one stopped.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pettingllms.errors import RecordError
from pettingllms.viewer.blocks import INVALID_LINE, Block
from pettingllms.viewer.rows import words_of

SECONDS = 1.0
"""Time that a request may search; the page repeats it until all episodes were searched."""
TOKEN = re.compile(r"[^\W_]+")
Mask = npt.NDArray[np.bool_]


class Search:
    """The episodes that contain some words; the last word may be a prefix."""

    def __init__(self, text: str) -> None:
        self.text = text
        phrases = [found for word in text.split() if (found := TOKEN.findall(word.lower()))]
        self._patterns = [_pattern(phrase, phrase is phrases[-1]) for phrase in phrases]
        tokens = [token for phrase in phrases for token in phrase]
        self._plain = [token.encode() for token in tokens if token.isascii()]
        self._found: dict[Block, list[Mask]] = {}
        self._chunks: dict[Block, Iterator[list[bytes]]] = {}

    def advance(self, blocks: Sequence[Block], seconds: float = SECONDS) -> float:
        """Search more episodes; return the share of all that were searched."""
        end = time.monotonic() + seconds
        for block in blocks:
            found = self._found.setdefault(block, [])
            for lines in self._chunks.setdefault(block, block.chunks()):
                found.append(np.array([self._matches(line) for line in lines], bool))
                if time.monotonic() > end:
                    return self._share(blocks)
        return 1.0

    def mask(self, blocks: Sequence[Block]) -> Mask:
        """Which episodes match, as far as they were searched."""
        mask = np.zeros(sum(block.size for block in blocks), bool)
        start = 0
        for block in blocks:
            if found := self._found.get(block):
                known = np.concatenate(found)[: block.size]
                mask[start : start + len(known)] = known
            start += block.size
        return mask

    def _share(self, blocks: Sequence[Block]) -> float:
        num_done = sum(len(mask) for block in blocks for mask in self._found.get(block, ()))
        return num_done / max(1, sum(block.size for block in blocks))

    def _matches(self, line: bytes) -> bool:
        """Cheap test of the line first: most lines are never parsed."""
        lowered = line.lower()
        if not self._patterns or not all(token in lowered for token in self._plain):
            return False
        try:
            words = words_of(json.loads(line)).lower()
        except INVALID_LINE as error:
            raise RecordError(f"cannot search an episode ({error!r})") from error
        return all(pattern.search(words) for pattern in self._patterns)


def _pattern(phrase: Sequence[str], is_prefix: bool) -> re.Pattern[str]:
    words = r"[\W_]+".join(map(re.escape, phrase))
    return re.compile(r"(?<![^\W_])" + words + ("" if is_prefix else r"(?![^\W_])"))
