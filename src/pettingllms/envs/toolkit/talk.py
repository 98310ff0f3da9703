"""What one role says and another reads: plain words, so that they stay words.

A message enters other prompts. Signs that a chat template, markup or a terminal would take for its
own are refused with the whole reply, not left out: what is passed on is what was said.
"""

import string

from pettingllms.envs.toolkit.answers import BadReply

SIGNS = frozenset(string.ascii_letters + string.digits + " .,!?'-:;()$%+_")
MAX_LETTERS = 160
HOW_TO_TALK = f"plain words and usual signs, at most {MAX_LETTERS} letters"


def checked_words(text: str) -> str:
    """A message in one line; BadReply if it is too long or has other signs in it."""
    words = " ".join(text.split())
    if len(words) > MAX_LETTERS:
        raise BadReply(f"a message has at most {MAX_LETTERS} letters")
    if not SIGNS.issuperset(words):
        raise BadReply("a message has letters, digits and usual signs alone")
    return words
