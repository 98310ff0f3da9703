"""What the roles of a program said, in tokens and in money."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pettingllms.types import Turn


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens."""

    prompt: float = 0.0
    reply: float = 0.0


@dataclass(frozen=True, slots=True)
class RoleCount:
    """What one role said."""

    role: str
    num_calls: int
    num_failed: int
    num_prompt_tokens: int
    num_reply_tokens: int
    num_segments: int
    """Conversations that were begun, or rewritten."""
    cost: float


def count_roles(turns: Sequence[Turn], prices: Mapping[str, Price]) -> list[RoleCount]:
    """Each role's share, in the order in which they first spoke."""
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
