"""Token counts and costs per role of a program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pettingllms.types import Turn


@dataclass(frozen=True, slots=True)
class Price:
    """Price per million tokens."""

    prompt: float = 0.0
    reply: float = 0.0


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Calls, tokens and cost of one role."""

    role: str
    num_calls: int
    num_failed: int
    num_prompt_tokens: int
    num_reply_tokens: int
    num_segments: int
    """Number of chats that were started or rewritten."""
    cost: float


def count_roles(turns: Sequence[Turn], prices: Mapping[str, Price]) -> list[RoleCount]:
    """Counts per role, in the order of their first replies."""
    found = []
    for role in dict.fromkeys(turn.role for turn in turns):
        own = [turn for turn in turns if turn.role == role]
        prompt = sum(turn.num_prompt_tokens for turn in own)
        reply = sum(turn.num_tokens for turn in own)
        price = prices.get(role, Price())
        found.append(
            RoleCount(
                role,
                len(own),
                sum(turn.credit.failure is not None for turn in own),
                prompt,
                reply,
                sum(turn.links.extends is None for turn in own),
                (prompt * price.prompt + reply * price.reply) / 1e6,
            )
        )
    return found
