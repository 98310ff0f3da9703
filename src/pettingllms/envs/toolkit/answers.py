"""Strict parsing of replies: exactly one `<answer>` per reply, otherwise BadReply with the reason.

A terse environment uses no tags: the whole reply is the answer.
"""

OPEN, CLOSE = "<answer>", "</answer>"
HOW_TO_ANSWER = f"You may think first. Give your answer once, as {OPEN}...{CLOSE}."


class BadReply(Exception):  # noqa: N818 - an event of the game, not an error of the program
    """An invalid reply. The environment assigns its reward; it never crashes an episode."""


def answer_in(reply: str, terse: bool = False) -> str:
    """The text between the answer tags, stripped; BadReply unless there is exactly one pair."""
    if terse:
        if not reply.strip():
            raise BadReply("the reply is empty")
        return reply.strip()
    opened, closed = reply.count(OPEN), reply.count(CLOSE)
    if opened != 1 or closed != 1:
        if opened == 0 and closed == 0:
            raise BadReply(f"no {OPEN}...{CLOSE} in the reply")
        raise BadReply(f"{opened} {OPEN} and {closed} {CLOSE} in the reply; give one of each")
    start, end = reply.index(OPEN) + len(OPEN), reply.index(CLOSE)
    if end < start:
        raise BadReply(f"{CLOSE} stands before {OPEN}")
    answer = reply[start:end].strip()
    if not answer:
        raise BadReply(f"nothing stands between {OPEN} and {CLOSE}")
    return answer


def as_reply(answer: str, terse: bool = False) -> str:
    """A reply with only this answer; one that already has tags is returned unchanged."""
    return answer if terse or OPEN in answer else f"{OPEN}{answer}{CLOSE}"
