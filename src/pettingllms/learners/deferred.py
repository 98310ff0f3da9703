"""Batches that the ranks of a learner build themselves.

The driver sends credit and references; each rank loads the tokens from where they were sampled.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pettingllms.learners.batches import item_of, joint_actions_of
from pettingllms.learners.serialization import Units
from pettingllms.types import Turn
from pettingllms.types.stored_turns import StoredTurn


class Deferred:
    """An argument of a learner's method that is built in the learner's process."""

    def __init__(self, build: Callable[[Any], Any], turns: Any) -> None:
        self._build = build
        self._turns = turns

    def built(self) -> Any:
        """The argument itself."""
        return self._build(self._turns)


def units_of(turns: Sequence[Turn], version: int | None = None) -> Units | Deferred:
    """Turns that have an advantage and log-probs, as a batch to train on. `version` is that of the
    policy now; None: the version that sampled the turns."""
    build = partial(_units, version=version)
    batch: Units | Deferred = _built_there(build, turns, turns)
    return batch


def critic_batch(joint_actions: Sequence[Sequence[Turn]], centralized: bool) -> Any:
    """Joint actions, as a critic's batch."""
    build = partial(joint_actions_of, centralized=centralized)
    return _built_there(build, joint_actions, [turn for some in joint_actions for turn in some])


def head_batch(turns: Sequence[Turn]) -> Any:
    """Turns whose values a value head computes."""
    return _built_there(_head_units, turns, turns)


def _built_there(build: Callable[[Any], Any], given: Any, turns: Sequence[Turn]) -> Any:
    if any(isinstance(turn, StoredTurn) for turn in turns):
        return Deferred(build, given)
    return build(given)


def _units(turns: Sequence[Turn], version: int | None) -> Units:
    return Units(item_of(turn, version) for turn in turns)


def _head_units(turns: Sequence[Turn]) -> Units:
    return Units(one.items[0] for one in joint_actions_of([[turn] for turn in turns], False))
