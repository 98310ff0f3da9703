"""Quoting untrusted text in a judge's prompt: control tokens removed, delimiters unpredictable.

The delimiter contains a hash of the quoted text and of the run's seed. To close its own quote, an
answer would have to contain its own hash, which is infeasible; repeated runs have equal prompts.
"""

import hashlib
import re
import unicodedata

CONTROL_TEXT = re.compile(
    r"<\s*[|｜][^<>\n]{0,64}[|｜]\s*>|<{1,2}\s*/?\s*SYS\s*>{1,2}|\[\s*/?\s*(INST|TOOL_\w+|SYSTEM)\s*\]"
    r"|<\s*/?\s*(s|bos|eos|pad|unk|mask|start_of_turn|end_of_turn|think|tool_\w+|system|assistant"
    r"|user|answer)\s*>",
    re.IGNORECASE,
)
"""Control sequences of common chat templates and of reply parsers."""
HIDDEN = ("Cc", "Cf", "Co", "Cs", "Cn")
"""Unicode categories of invisible characters: control, format, private, surrogate, unassigned."""
REPLACEMENT = "?"


def plain(text: str, max_letters: int, special: tuple[str, ...] = ()) -> str:
    """The text without control sequences and invisible characters, cut to `max_letters`."""
    seen = "".join(char for char in text if char in "\n\t" or not _is_hidden(char))
    for token in sorted(special, key=len, reverse=True):
        seen = seen.replace(token, REPLACEMENT)
    seen = CONTROL_TEXT.sub(REPLACEMENT, seen).replace("<|", "< |").replace("|>", "| >")
    return seen if len(seen) <= max_letters else f"{seen[:max_letters]}... (cut)"


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in HIDDEN


def nonce(seed: int, *texts: str) -> str:
    """A word derived from the texts that none of them contains."""
    digest = hashlib.sha256(str(seed).encode())
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode())
    return digest.hexdigest()[:16]


def fenced(name: str, text: str, word: str) -> str:
    """The text between two delimiter lines that name it."""
    return f"[{name} {word}]\n{text}\n[end of {name} {word}]"
