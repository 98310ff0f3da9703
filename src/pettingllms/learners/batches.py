"""From episodes to what one pass of a learner reads: plain arrays, no engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from pettingllms.errors import LearnerError
from pettingllms.types import Episode, Given, Ids, Image, LogProbs, Turn, Values, images_of

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One reply to learn from."""

    prompt_ids: Ids
    response_ids: Ids
    logprobs: LogProbs
    """Of the response, as the sampler gave them."""
    advantage: float
    advantages: Values | None = None
    """Of each response token; without them all have `advantage`."""
    values: Values | None = None
    """What the critic expected before the batch, where the prompt ends and after each token."""
    targets: Values | None = None
    """What it should have expected there; not a number where it is not trained."""
    reference: LogProbs | None = None
    """Log-probs of the response before anything was learnt, where replies are learnt in pairs."""
    images: tuple[Image, ...] = ()
    """Images of the prompt, in the order of their places in it."""

    @property
    def given(self) -> Given:
        """What an engine is asked about this reply."""
        return Given(self.prompt_ids, self.response_ids, self.images)

    @property
    def num_tokens(self) -> int:
        """Tokens that a model reads for this reply, its prompt included."""
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two replies to one prompt of which one is preferred. They are learnt in one pass."""

    chosen: Item
    rejected: Item

    @property
    def num_tokens(self) -> int:
        """Tokens that a model reads for both, with the padding that the shorter one gets."""
        return 2 * max(self.chosen.num_tokens, self.rejected.num_tokens)


Unit = Item | Pair
"""What minibatches and passes are never cut within."""
UnitT = TypeVar("UnitT", Item, Pair, Unit)


def replies_of(units: Sequence[Unit]) -> list[Item]:
    """The replies of units; those of a pair are neighbours, the chosen one first."""
    return [
        item
        for unit in units
        for item in ((unit.chosen, unit.rejected) if isinstance(unit, Pair) else (unit,))
    ]


def turns_of(
    episodes: Sequence[Episode], policy: str, skip_zero: bool, has_head: bool
) -> list[Turn]:
    """What one policy learns from, in the order of episodes and turns.

    A reply without a token is left out: there is nothing in it that could be made more likely. With
    `skip_zero` so is one whose advantage is 0, unless the policy has a value head that learns from
    it.
    """
    turns: list[Turn] = []
    for episode in episodes:
        for turn in episode.turns:
            if turn.policy != policy or turn.credit.advantage is None or not turn.num_tokens:
                continue
            valued = has_head and turn.credit.returns is not None
            flat = not turn.credit.advantage and turn.credit.advantages is None
            if skip_zero and flat and not valued:
                continue
            if turn.logprobs is None:
                raise LearnerError(
                    f"a reply of role '{turn.role}' in episode '{episode.id}' is to be learnt "
                    f"from, but has no log-probs; sample policy '{policy}' from a sampler that "
                    "gives them, or do not train it"
                )
            turns.append(turn)
    return turns


def item_of(turn: Turn) -> Item:
    """A turn that has an advantage and log-probs, as a learner reads it."""
    assert turn.credit.advantage is not None  # noqa: S101 - `turns_of` leaves out those without
    assert turn.logprobs is not None  # noqa: S101 - the same
    return Item(
        turn.prompt_ids,
        turn.response_ids,
        turn.logprobs,
        float(turn.credit.advantage),
        turn.credit.advantages,
        turn.credit.values,
        _targets(turn),
        images=images_of(turn.messages),
    )


@dataclass(frozen=True, slots=True, eq=False)
class JointAction:
    """Replies whose values a critic mixes, with their roles; one alone if it mixes none."""

    roles: tuple[str, ...]
    items: tuple[Item, ...]


def joint_actions_of(
    joint_actions: Sequence[Sequence[Turn]], centralized: bool
) -> list[JointAction]:
    """What a critic reads: each role's own prompt, or what the whole team sees, and the reply."""
    return [
        JointAction(
            tuple(turn.role for turn in turns), tuple(_read(turn, centralized) for turn in turns)
        )
        for turns in joint_actions
    ]


def _read(turn: Turn, centralized: bool) -> Item:
    prompt_ids = turn.centralized_ids if centralized else turn.prompt_ids
    if prompt_ids is None:
        raise LearnerError(
            f"a reply of role '{turn.role}' was sampled without what the whole team saw, which its "
            "critic reads; sample it with this algorithm"
        )
    nothing = np.zeros(turn.num_tokens, dtype=np.float32)
    return Item(
        prompt_ids,
        turn.response_ids,
        nothing,
        0.0,
        values=turn.credit.values,
        targets=_targets(turn),
        images=turn.centralized_images if centralized else images_of(turn.messages),
    )


def _targets(turn: Turn) -> Values | None:
    if turn.credit.returns is not None and turn.credit.values is None:
        raise LearnerError(
            f"a reply of role '{turn.role}' has targets for a critic that was never asked about "
            "it; let the critic give values before credit is assigned"
        )
    return turn.credit.returns


def split(items: Sequence[ItemT], num_parts: int, seed: int) -> list[list[ItemT]]:
    """Minibatches: shuffled, of sizes that differ by one at most, and none of them empty.

    Shuffled because neighbours are plays of one task: in order, each optimizer step would see a
    few tasks only. With fewer items than parts there are fewer parts: an optimizer step over
    nothing would still move the weights by its momentum.
    """
    order = np.random.default_rng(seed).permutation(len(items))
    parts = np.array_split(order, num_parts)
    return [[items[at] for at in part] for part in parts if len(part)]


def micro_batches(
    items: Sequence[UnitT], max_tokens: int, num_ranks: int
) -> list[list[list[UnitT]]]:
    """For each rank its micro-batches, as many for every rank.

    Shards of a model move between ranks in every pass, so ranks must make the same number of
    passes, and each waits for the slowest. Sorted items are therefore dealt out like cards: in one
    pass all ranks hold replies of about one length, which also keeps padding small. The longest
    come first, so that what does not fit into memory fails at once. In the last pass a rank may
    have nothing.

    A micro-batch of n items counts n times its longest, prompt and response together; it counts
    `max_tokens` at most, unless it is one item that is longer by itself.
    """
    longest_first = sorted(items, key=lambda item: item.num_tokens, reverse=True)
    ranks: list[list[list[UnitT]]] = [[] for _ in range(num_ranks)]
    start = 0
    while start < len(longest_first):
        rows = max(1, max_tokens // longest_first[start].num_tokens)
        dealt = longest_first[start : start + rows * num_ranks]
        for rank, passes in enumerate(ranks):
            passes.append(dealt[rank::num_ranks])
        start += len(dealt)
    return ranks


def together(units: Sequence[UnitT], max_tokens: int) -> list[list[UnitT]]:
    """Micro-batches of one rank in which replies to one prompt are neighbours, so that it can be
    read once for them. The prompt with the longest reply comes first. They count as above."""
    prompts: dict[bytes, list[UnitT]] = {}
    for unit in units:
        prompts.setdefault(replies_of([unit])[0].prompt_ids.tobytes(), []).append(unit)
    siblings = sorted(prompts.values(), key=_longest, reverse=True)
    passes: list[list[UnitT]] = []
    widest = 0
    for unit in (unit for some in siblings for unit in some):
        widest = max(widest, unit.num_tokens)
        if not passes or (len(passes[-1]) + 1) * widest > max_tokens:
            passes.append([])
            widest = unit.num_tokens
        passes[-1].append(unit)
    return passes


def _longest(units: Sequence[UnitT]) -> int:
    return max(unit.num_tokens for unit in units)
