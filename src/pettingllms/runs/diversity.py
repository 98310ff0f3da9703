"""Diversity of a policy's replies: across prompts, and within a reply.

A share of distinct replies would be low for every policy with few legal moves, such as nine cells
over three hundred boards. In a collapse, replies no longer depend on the prompt. So diversity is an
effective number of replies: the exponential of their entropy, with equal weight per prompt. Nine
cells in use give about 9, however many boards there are; one reply for all of them gives 1.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

from pettingllms.algos.credit import mean
from pettingllms.types import Ids, Turn

NGRAM = 4
"""Length of the n-grams whose repetition is measured (rep-4 of Welleck et al., 2020)."""
MIN_TOKENS = 32
"""Minimum number of tokens of a reply whose repetition is measured."""


def diversity(turns: Iterable[Turn]) -> dict[str, float]:
    """Diversity metrics of the turns of one policy; empty if it sampled none."""
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
    """The share of each reply with equal weight per distinct prompt, and the number of prompts."""
    replies: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for turn in turns:
        replies[turn.prompt_key()][turn.text.strip()] += 1
    shares: dict[str, float] = defaultdict(float)
    for of_prompt in replies.values():
        for text, count in of_prompt.items():
            shares[text] += count / of_prompt.total() / len(replies)
    return shares, len(replies)


def repetition(ids: Ids) -> float:
    """Share of 4-grams of tokens that are repeated within a reply; 0 for a short reply."""
    if len(ids) < MIN_TOKENS:
        return 0.0
    tokens = ids.tolist()
    grams = [tuple(tokens[at : at + NGRAM]) for at in range(len(tokens) - NGRAM + 1)]
    return 1 - len(set(grams)) / len(grams)
