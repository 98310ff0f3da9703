"""From episodes to batches, minibatches and micro-batches of plain arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from pettingllms.errors import LearnerError
from pettingllms.types import Episode, Ids, Image, LogProbs, ScoreRequest, Turn, Values

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One reply to train on."""

    prompt_ids: Ids
    response_ids: Ids
    logprobs: LogProbs
    """The sampler's log-probs of the response."""
    advantage: float
    advantages: Values | None = None
    """Per response token; if None, all tokens have `advantage`."""
    values: Values | None = None
    """The critic's values before the batch, at the prompt's end and after each token."""
    targets: Values | None = None
    """Value targets at the same positions; NaN where the critic is not trained."""
    reference: LogProbs | None = None
    """Log-probs of the response under the reference model, for preference pairs."""
    images: tuple[Image, ...] = ()
    """Images of the prompt, in the order of their positions."""
    num_stale: int = 0
    """How many tokens, at the beginning of the response, older versions of the policy sampled.
    Their log-probs differ from the learner's also where both compute correctly."""

    @property
    def given(self) -> ScoreRequest:
        """Prompt and reply, as an engine scores them."""
        return ScoreRequest(self.prompt_ids, self.response_ids, self.images)

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and reply."""
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A preference pair: two replies to one prompt, trained on in one pass."""

    chosen: Item
    rejected: Item

    @property
    def num_tokens(self) -> int:
        """Tokens of both replies with their prompts, padding included."""
        return 2 * max(self.chosen.num_tokens, self.rejected.num_tokens)


Unit = Item | Pair
"""What stays together in minibatches and micro-batches."""
UnitT = TypeVar("UnitT", Item, Pair, Unit)


def replies_of(units: Sequence[Unit]) -> list[Item]:
    """The replies of units; those of a pair are adjacent, the chosen one first."""
    return [
        item
        for unit in units
        for item in ((unit.chosen, unit.rejected) if isinstance(unit, Pair) else (unit,))
    ]


def turns_of(
    episodes: Sequence[Episode],
    policy: str,
    skip_zero: bool,
    has_head: bool,
    mask_truncated: bool = False,
) -> list[Turn]:
    """The turns that one policy is trained on, in the order of episodes and turns.

    Empty replies are excluded. With `skip_zero` so are replies whose advantage is 0, unless the
    policy has a value head that is trained on them. With `mask_truncated` so are replies that
    reached the token limit, for the value head too.
    """
    turns: list[Turn] = []
    for episode in episodes:
        for turn in episode.turns:
            if turn.policy != policy or turn.credit.advantage is None or not turn.num_tokens:
                continue
            if mask_truncated and turn.finish == "length" and not turn.limit:
                continue
            valued = has_head and turn.credit.returns is not None
            flat = not turn.credit.advantage and turn.credit.advantages is None
            if skip_zero and flat and not valued:
                continue
            if not turn.has_logprobs:
                raise LearnerError(
                    f"a reply of role '{turn.role}' in episode '{episode.id}' has no log-probs, "
                    f"which training needs; sample policy '{policy}' with an engine that returns "
                    "log-probs, or do not train it"
                )
            turns.append(turn)
    return turns


def item_of(turn: Turn, version: int | None = None) -> Item:
    """A turn that has an advantage and log-probs, as an item to train on. `version` is that of the
    policy now; None: the version that sampled the turn."""
    assert turn.credit.advantage is not None  # noqa: S101 - `turns_of` excludes others
    assert turn.logprobs is not None  # noqa: S101 - the same
    return Item(
        turn.prompt_ids,
        turn.response_ids,
        turn.logprobs,
        float(turn.credit.advantage),
        turn.credit.advantages,
        turn.credit.values,
        _targets(turn),
        images=turn.images,
        num_stale=0 if version is None else _num_stale(turn, version),
    )


def _num_stale(turn: Turn, version: int) -> int:
    """Tokens of a turn that other versions sampled. Versions only rise, so these are the first."""
    return sum(run.num_tokens for run in turn.version_runs if run.version != version)


@dataclass(frozen=True, slots=True, eq=False)
class JointAction:
    """Simultaneous replies whose values a critic mixes, with their roles; otherwise one reply."""

    roles: tuple[str, ...]
    items: tuple[Item, ...]


def joint_actions_of(
    joint_actions: Sequence[Sequence[Turn]], centralized: bool
) -> list[JointAction]:
    """The critic's inputs: each role's own prompt, or the centralized observation, and the
    reply."""
    return [
        JointAction(
            tuple(turn.role for turn in turns),
            tuple(_critic_item(turn, centralized) for turn in turns),
        )
        for turns in joint_actions
    ]


def _critic_item(turn: Turn, centralized: bool) -> Item:
    prompt_ids = turn.centralized_ids if centralized else turn.prompt_ids
    if prompt_ids is None:
        raise LearnerError(
            f"a reply of role '{turn.role}' was sampled without a centralized observation, which "
            "the critic needs; sample it with this algorithm"
        )
    nothing = np.zeros(turn.num_tokens, dtype=np.float32)
    return Item(
        prompt_ids,
        turn.response_ids,
        nothing,
        0.0,
        values=turn.credit.values,
        targets=_targets(turn),
        images=turn.centralized_images if centralized else turn.images,
    )


def _targets(turn: Turn) -> Values | None:
    if turn.credit.returns is not None and turn.credit.values is None:
        raise LearnerError(
            f"a reply of role '{turn.role}' has value targets but no values; compute the critic's "
            "values before credit assignment"
        )
    return turn.credit.returns


def split(items: Sequence[ItemT], num_parts: int, seed: int) -> list[list[ItemT]]:
    """Shuffled minibatches, none empty, whose sizes differ by at most one.

    They are shuffled because adjacent items are episodes of one task: in order, each optimizer step
    would see only a few tasks. With fewer items than parts there are fewer parts: an optimizer step
    on an empty minibatch would still move the weights by its momentum.
    """
    order = np.random.default_rng(seed).permutation(len(items))
    parts = np.array_split(order, num_parts)
    return [[items[at] for at in part] for part in parts if len(part)]
