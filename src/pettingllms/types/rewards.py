"""Rewards: a number that somebody gave, or a failure with a reason. There is no default number."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, get_args

Owner = Literal["environment", "sampler", "judge", "limit"]
"""Who is answerable for a failure. `limit` is a cap of the configuration."""


MAX_REWARD = 1e9


@dataclass(frozen=True, slots=True)
class Scored:
    """A reward that was really given."""

    value: float

    def __post_init__(self) -> None:
        given: Any = self.value
        kind: type = type(given)
        if kind is float and -MAX_REWARD <= given <= MAX_REWARD:
            return  # as nearly all are, and there are many
        if kind is bool or not issubclass(kind, Real):
            raise TypeError(
                f"Scored({given!r:.60}) is no number; write Scored(1.0), and if no reward can "
                "be given, give Failed(reason, owner)"
            )
        value = float(given) if abs(given) <= MAX_REWARD else math.nan
        if math.isnan(value):
            raise ValueError(
                f"Scored({given!r:.60}) is not a number from -{MAX_REWARD:g} to "
                f"{MAX_REWARD:g}; if no reward can be given, give Failed(reason, owner)"
            )
        object.__setattr__(self, "value", value)


@dataclass(frozen=True, slots=True)
class Failed:
    """No reward could be given. Nobody trains on it and it stands in nobody's baseline."""

    reason: str
    owner: Owner

    def __post_init__(self) -> None:
        if self.owner not in get_args(Owner):
            raise ValueError(f"owner is {self.owner!r}; give one of {', '.join(get_args(Owner))}")


Reward = Scored | Failed
"""What was given, or why nothing could be."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """What one step paid, in three levels that are kept apart until an algorithm mixes them.

    A level or role that is absent was not paid by this step.
    """

    process: Mapping[str, Reward] = field(default_factory=dict)
    """For the reply that a role gave in this very step."""
    agent: Mapping[str, Reward] = field(default_factory=dict)
    """For a role, whether or not it acted in this step."""
    team: Reward | None = None
    """For all roles together."""

    def __post_init__(self) -> None:
        team = () if self.team is None else (self.team,)
        for reward in (*self.process.values(), *self.agent.values(), *team):
            if not isinstance(reward, (Scored, Failed)):
                raise TypeError(f"a reward is {reward!r}; give Scored(...) or Failed(...)")


NO_REWARDS = Rewards()
"""Of a step that paid nobody."""


def total(rewards: Iterable[Reward | None]) -> Reward | None:
    """The sum of what was paid: a failure if any part failed, None if nothing was paid at all."""
    paid = [reward for reward in rewards if reward is not None]
    if len(paid) == 1:
        return paid[0]
    failed = next((reward for reward in paid if isinstance(reward, Failed)), None)
    if failed is not None or not paid:
        return failed
    return Scored(math.fsum(reward.value for reward in paid if isinstance(reward, Scored)))
