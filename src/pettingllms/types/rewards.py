"""Rewards: a number, or a failure with a reason and an owner. There is no default number."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, get_args

Owner = Literal["environment", "sampler", "judge", "limit"]
"""The component that caused a failure. `limit` is a limit of the configuration."""


MAX_REWARD = 1e9


@dataclass(frozen=True, slots=True)
class Scored:
    """A reward that was given."""

    value: float

    def __post_init__(self) -> None:
        given: Any = self.value
        kind: type = type(given)
        if kind is float and -MAX_REWARD <= given <= MAX_REWARD:
            return  # fast path: nearly all rewards
        if kind is bool or not issubclass(kind, Real):
            raise TypeError(
                f"Scored({given!r:.60}) is not a number; write Scored(1.0), or "
                "Failed(reason, owner) if no reward can be given"
            )
        value = float(given) if abs(given) <= MAX_REWARD else math.nan
        if math.isnan(value):
            raise ValueError(
                f"Scored({given!r:.60}) is not in [-{MAX_REWARD:g}, {MAX_REWARD:g}]; write "
                "Failed(reason, owner) if no reward can be given"
            )
        object.__setattr__(self, "value", value)


@dataclass(frozen=True, slots=True)
class Failed:
    """No reward could be given. Failed turns are excluded from training and from baselines."""

    reason: str
    owner: Owner

    def __post_init__(self) -> None:
        if self.owner not in get_args(Owner):
            raise ValueError(
                f"owner is {self.owner!r}; expected one of {', '.join(get_args(Owner))}"
            )


Reward = Scored | Failed
"""A number, or the reason for its absence."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """The rewards of one step at three levels, kept separate until credit assignment mixes them.

    An absent level or role got no reward in this step.
    """

    process: Mapping[str, Reward] = field(default_factory=dict)
    """Process reward by role: for the reply in this step."""
    agent: Mapping[str, Reward] = field(default_factory=dict)
    """Agent reward by role, whether or not the role acted in this step."""
    team: Reward | None = None
    """Team reward, shared by all roles."""

    def __post_init__(self) -> None:
        team = () if self.team is None else (self.team,)
        for reward in (*self.process.values(), *self.agent.values(), *team):
            if not isinstance(reward, (Scored, Failed)):
                raise TypeError(f"reward is {reward!r}; expected Scored(...) or Failed(...)")


NO_REWARDS = Rewards()
"""The rewards of a step without any."""


def total(rewards: Iterable[Reward | None]) -> Reward | None:
    """The sum of rewards: a failure if any reward failed, None if there is no reward."""
    given = [reward for reward in rewards if reward is not None]
    if len(given) == 1:
        return given[0]
    failed = next((reward for reward in given if isinstance(reward, Failed)), None)
    if failed is not None or not given:
        return failed
    return Scored(math.fsum(reward.value for reward in given if isinstance(reward, Scored)))


SubmissionLevel = Literal["agent", "process"]
TEAM = ""
"""Denotes the whole team in place of a role."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One answer to judge. Judges compare two submissions only if their questions are equal."""

    question: str
    """The task, as the judge reads it."""
    answer: str
    """The answer, which may be entirely model-generated."""
    criteria: str = ""
    """What a judge should look at."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-like facts for rule judges, never shown to an LLM judge or to a verifier."""
    level: SubmissionLevel = "agent"
    """Which reward of a role the verdict becomes: `agent`, or `process` if it is about the reply of
    this step alone. Verdicts on `TEAM` are team rewards."""
