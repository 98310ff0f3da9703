"""Messages from one role to another, restricted to plain text.

A message enters the prompts of other roles. Symbols that a chat template, markup or a terminal
could interpret make the whole reply invalid. They are not stripped: recipients read exactly what
was sent.
"""

import string

from pettingllms.envs.toolkit.answers import BadReply

SIGNS = frozenset(string.ascii_letters + string.digits + " .,!?'-:;()$%+_")
MAX_LETTERS = 160
HOW_TO_TALK = f"plain words and usual signs, at most {MAX_LETTERS} letters"


def checked_words(text: str) -> str:
    """A message on one line; BadReply if it is too long or contains other symbols."""
    words = " ".join(text.split())
    if len(words) > MAX_LETTERS:
        raise BadReply(f"a message has at most {MAX_LETTERS} letters")
    if not SIGNS.issuperset(words):
        raise BadReply("a message has letters, digits and usual signs alone")
    return words
