"""Somebody else's text in a judge's prompt: stripped of what a template would take for its own, and
fenced by a word that its author cannot know.

The fence carries a hash of all that stands between the fences and of the run's seed. An answer that
closes its own fence would have to hold its own hash, so none can, and a repeated run has the same
prompts.
"""

import hashlib
import re
import unicodedata

MARKS = re.compile(
    r"<\s*[|｜][^<>\n]{0,64}[|｜]\s*>|<{1,2}\s*/?\s*SYS\s*>{1,2}|\[\s*/?\s*(INST|TOOL_\w+|SYSTEM)\s*\]"
    r"|<\s*/?\s*(s|bos|eos|pad|unk|mask|start_of_turn|end_of_turn|think|tool_\w+|system|assistant"
    r"|user|answer)\s*>",
    re.IGNORECASE,
)
"""What chat templates of the usual families, or readers of replies, take for their own."""
HIDDEN = ("Cc", "Cf", "Co", "Cs", "Cn")
"""Kinds of signs that nobody sees: control, format, private, halves of pairs, unassigned."""
GONE = "?"


def plain(text: str, max_letters: int, special: tuple[str, ...] = ()) -> str:
    """The text as text: no mark of a template, no hidden sign, not too long."""
    seen = "".join(sign for sign in text if sign in "\n\t" or not _is_hidden(sign))
    for mark in sorted(special, key=len, reverse=True):
        seen = seen.replace(mark, GONE)
    seen = MARKS.sub(GONE, seen).replace("<|", "< |").replace("|>", "| >")
    return seen if len(seen) <= max_letters else f"{seen[:max_letters]}... (cut)"


def _is_hidden(sign: str) -> bool:
    return unicodedata.category(sign) in HIDDEN


def nonce(seed: int, *texts: str) -> str:
    """A word that follows from the texts and is in none of them."""
    digest = hashlib.sha256(str(seed).encode())
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode())
    return digest.hexdigest()[:16]


def fenced(name: str, text: str, word: str) -> str:
    """The text between two lines that name it."""
    return f"[{name} {word}]\n{text}\n[end of {name} {word}]"
