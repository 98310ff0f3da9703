"""Log-probs of a policy's possible replies, where it chooses among a few.

No reply is sampled. The engine scores every candidate reply including its end token, so the result
is the policy's probability of exactly that reply.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pettingllms.types import Ids, LogProbs, Message, ScoreRequest, images_of

Score = Callable[[Sequence[ScoreRequest]], Awaitable[list[LogProbs]]]
Choice = tuple[Sequence[Message], Sequence[str]]
"""A prompt, and its candidate replies."""


class Encoder(Protocol):
    """Turns prompts and replies into ids."""

    def render(self, messages: Sequence[Message]) -> Ids:
        """Ids of the prompt, ready for a reply."""

    def encode(self, text: str) -> Ids:
        """Ids of a reply that was not sampled, with the end token."""


async def reply_logprobs(
    score: Score, encoder: Encoder, choices: Sequence[Choice]
) -> list[list[float]]:
    """The log-prob of each candidate reply of each choice, at the temperature of `score`."""
    pairs = [
        ScoreRequest(encoder.render(messages), encoder.encode(reply), images_of(messages))
        for messages, replies in choices
        for reply in replies
    ]
    found = iter(await score(pairs))
    return [[float(next(found).sum(dtype=float)) for _ in replies] for _, replies in choices]
