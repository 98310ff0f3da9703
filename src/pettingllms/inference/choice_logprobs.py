"""A policy read out where it may say one of a few things: how likely is each of them?

No reply is sampled. The engine gives the log-probs of every reply that is asked about, up to and
with the token that ends it, so what comes back is the policy's own chance to say exactly that.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pettingllms.types import Given, Ids, LogProbs, Message, images_of

Score = Callable[[Sequence[Given]], Awaitable[list[LogProbs]]]
Choice = tuple[Sequence[Message], Sequence[str]]
"""A prompt, and the replies that are asked about."""


class Encoder(Protocol):
    """What turns prompts and replies into a policy's ids."""

    def render(self, messages: Sequence[Message]) -> Ids:
        """Ids of the prompt, ready for a reply."""

    def encode(self, text: str) -> Ids:
        """Ids of a reply that no policy has written, and the one that ends it."""


async def reply_logprobs(
    score: Score, encoder: Encoder, choices: Sequence[Choice]
) -> list[list[float]]:
    """For each choice the log-prob of each of its replies, at the temperature of `score`."""
    pairs = [
        Given(encoder.render(messages), encoder.encode(reply), images_of(messages))
        for messages, replies in choices
        for reply in replies
    ]
    found = iter(await score(pairs))
    return [[float(next(found).sum(dtype=float)) for _ in replies] for _, replies in choices]
