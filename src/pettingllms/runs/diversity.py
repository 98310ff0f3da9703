"""How much a policy's replies differ: from prompt to prompt, and inside themselves.

A share of distinct replies would accuse every policy with few legal moves: nine cells over three
hundred boards. What a collapse takes away is that replies follow the prompt at all, so replies are
counted by how evenly they are used: the exponential of their entropy, each prompt counting once.
Nine cells in use are about nine, however many boards there were; one reply for all of them is 1.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

from pettingllms.algos.credit import mean
from pettingllms.types import Ids, Turn

GRAM = 4
"""Tokens of a run that may come back (the rep-4 of Welleck et al., 2020)."""
LONG = 32
"""Tokens without which a reply is too short to loop: a path of eight steps to the right is none."""


def diversity(turns: Iterable[Turn]) -> dict[str, float]:
    """What the guards look at, of the turns of one policy; nothing where nothing was written."""
    written = [turn for turn in turns if turn.policy_version is not None]
    if not written:
        return {}
    shares, num_prompts = reply_shares(written)
    return {
        "distinct_prompts": float(num_prompts),
        "distinct_replies": math.exp(-math.fsum(p * math.log(p) for p in shares.values())),
        "repetition": mean([repetition(turn.response_ids) for turn in written]),
    }


def reply_shares(turns: Sequence[Turn]) -> tuple[dict[str, float], int]:
    """The share of each reply, every different prompt counting alike; and how many those are."""
    replies: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for turn in turns:
        replies[turn.prompt_key()][turn.text.strip()] += 1
    shares: dict[str, float] = defaultdict(float)
    for of_prompt in replies.values():
        for text, count in of_prompt.items():
            shares[text] += count / of_prompt.total() / len(replies)
    return shares, len(replies)


def repetition(ids: Ids) -> float:
    """Share of runs of four tokens that stood in the reply before; 0 in a short one."""
    if len(ids) < LONG:
        return 0.0
    tokens = ids.tolist()
    grams = [tuple(tokens[at : at + GRAM]) for at in range(len(tokens) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams)
