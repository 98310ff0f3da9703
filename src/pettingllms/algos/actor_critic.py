"""Base of actor-critic algorithms: advantages and value targets from the values of a critic.

An untrained critic predicts 0 everywhere, because its value head starts at zero. A turn without
values is therefore credited as by an untrained critic, which allows rollouts without an engine.
Learners reject such turns.
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


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    gamma: float,
    gae_lambda: float,
    last_value: float = 0.0,
) -> list[float]:
    """The advantage of each state of a trajectory.

    `values` are the critic's values of the states, `rewards` the rewards on leaving them, and
    `last_value` is the value after the last state: 0 if the trajectory ended there. gae_lambda = 1
    gives the return minus the value, 0 gives the one-step TD error. Values in between trade the
    variance of returns for the bias of the critic.
    """
    advantages: list[float] = []
    ahead, value_after = 0.0, last_value
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        td_error = reward + gamma * value_after - value
        ahead = td_error + gamma * gae_lambda * ahead
        value_after = value
        advantages.append(ahead)
    return advantages[::-1]


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted return from each state of a trajectory."""
    return gae(rewards, [0.0] * len(rewards), gamma, 1.0)


class ActorCriticConfig(AlgoConfig):
    """Options of all actor-critic algorithms."""

    standardize: bool = True
    """Whether the advantages of a policy are standardized to mean 0 and standard deviation 1 over
    the batch."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Advantages of a reply (one, or one per token) and value targets of the critic."""

    turn: Turn
    advantages: list[float]
    returns: Values
    by_token: bool = False


class ActorCritic(Algorithm):
    """Compares the return of each reply with the value that a critic predicted."""

    Config: ClassVar[type[AlgoConfig]] = ActorCriticConfig
    config: ActorCriticConfig
    needs: ClassVar[frozenset[Need]] = frozenset({"values"})
    min_samples: ClassVar[int] = 1
    min_members: ClassVar[int] = 1

    @abstractmethod
    def estimates(self, episodes: Sequence[Episode]) -> Iterator[Estimate]:
        """Unscaled advantages and value targets of every trained turn."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self._groups(list(self.estimates(episodes)))

    def advantages(self, group: Group) -> list[float]:
        return self._scaled(reward_list(group))

    def assign(self, episodes: Sequence[Episode]) -> list[Group]:
        """Write the advantages and value targets of every trained turn."""
        self.clear(episodes)
        estimates = list(self.estimates(self.shaped(episodes)))
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
        """All turns of a policy, over which its advantages are standardized."""
        return self.grouped(
            ((e.turn.policy,), Member([e.turn], mean(e.advantages))) for e in estimates
        )

    def _scaled(self, advantages: list[float]) -> list[float]:
        return standardized(advantages) if self.config.standardize else advantages


def values_of(turn: Turn) -> list[float]:
    """The critic's values at the end of the prompt and after each token."""
    if turn.credit.values is None:
        return [0.0] * (turn.num_tokens + 1)
    values: list[float] = turn.credit.values.tolist()
    return values


def targets_at(turn: Turn, targets: dict[int, float]) -> Values:
    """Value targets at some positions of a turn, and NaN at the rest."""
    returns = np.full(turn.num_tokens + 1, np.nan, dtype=np.float32)
    for at, target in targets.items():
        returns[at] = target
    return returns
