"""What algorithms with a critic share: estimates for turns, advantages and targets from them.

A critic that has learnt nothing expects 0 everywhere, as its head begins with zeros. So a turn
without values is credited as that critic would: this is how a configuration is played without an
engine. A learner that is to train on such a turn refuses it.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pettingllms.algos.base import Algorithm, Need, reward_list
from pettingllms.algos.credit import mean, standardized
from pettingllms.config import AlgoConfig
from pettingllms.types import Episode, Group, Member, Turn, Values


class ValuedConfig(AlgoConfig):
    """Options of every algorithm with a critic."""

    standardize: bool = True
    """Whether a policy's advantages are brought to mean 0 and deviation 1 over the batch."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a critic makes of a turn: advantages of the whole reply or of its tokens, targets."""

    turn: Turn
    advantages: list[float]
    returns: Values
    by_token: bool = False


class Valued(Algorithm):
    """Compares each reply with what a critic expected."""

    Config: ClassVar[type[AlgoConfig]] = ValuedConfig
    config: ValuedConfig
    needs: ClassVar[frozenset[Need]] = frozenset({"values"})
    min_samples: ClassVar[int] = 1
    min_members: ClassVar[int] = 1

    @abstractmethod
    def estimates(self, episodes: Sequence[Episode]) -> Iterator[Estimate]:
        """What every turn that is trained on came to, before any scaling."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self._groups(list(self.estimates(episodes)))

    def advantages(self, group: Group) -> list[float]:
        return self._scaled(reward_list(group))

    def assign(self, episodes: Sequence[Episode]) -> list[Group]:
        """Write advantages, and targets for the critic, on every turn that is trained on."""
        self.clear(episodes)
        estimates = list(self.estimates(episodes))
        for policy in dict.fromkeys(estimate.turn.policy for estimate in estimates):
            own = [estimate for estimate in estimates if estimate.turn.policy == policy]
            scaled = iter(self._scaled([number for e in own for number in e.advantages]))
            for estimate in own:
                part = [next(scaled) for _ in estimate.advantages]
                estimate.turn.credit.advantage = mean(part)
                estimate.turn.credit.returns = estimate.returns
                if estimate.by_token:
                    estimate.turn.credit.advantages = np.array(part, dtype=np.float32)
        return self._groups(estimates)

    def _groups(self, estimates: Sequence[Estimate]) -> list[Group]:
        """All turns of a policy: what its advantages are scaled over."""
        return self.grouped(
            ((e.turn.policy,), Member([e.turn], mean(e.advantages))) for e in estimates
        )

    def _scaled(self, advantages: list[float]) -> list[float]:
        return standardized(advantages) if self.config.standardize else advantages


def values_of(turn: Turn) -> list[float]:
    """What was expected at the prompt's end and after each token."""
    if turn.credit.values is None:
        return [0.0] * (turn.num_tokens + 1)
    values: list[float] = turn.credit.values.tolist()
    return values


def targets_at(turn: Turn, targets: dict[int, float]) -> Values:
    """Targets for some of a turn's values, and none for the rest."""
    returns = np.full(turn.num_tokens + 1, np.nan, dtype=np.float32)
    for at, target in targets.items():
        returns[at] = target
    return returns
