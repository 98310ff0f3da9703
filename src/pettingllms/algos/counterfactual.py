"""Counterfactual: a reply is compared with other replies of its role in the same place.

In a team one reward answers for many replies. Compared between episodes, a reply is credited with
what its teammates happened to say before it. The counterfactual baseline (Foerster et al., 2018,
COMA) is the expected return had this role replied otherwise in the same state. There a critic
estimates it. Environments here are pure, so it is measured: the episode is taken up again in that
very state with other replies of the role.

Every later turn, of teammates too, is sampled again, because it answers the reply. The episode is
itself one sample of its reply and what follows, so it is compared with the others on equal terms,
and the expected gradient is the exact policy gradient. Only replies of the same step are the same
on both sides: who acts at the same time cannot react.

The other replies are samples of the same policy to the same prompt, so each can be compared with
the rest in its turn, and trained on, at no further cost.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from pettingllms.algos.at_grpo import Siblings
from pettingllms.algos.base import Need, reward_list
from pettingllms.algos.credit import leave_one_out
from pettingllms.config import AlgoConfig
from pettingllms.types import Episode, Group, Member


class CounterfactualConfig(AlgoConfig):
    """Options of counterfactual credit."""

    train_alternatives: bool = True
    """Whether the other replies are trained on too, each compared with the rest. If not, they only
    are the baseline of the reply that was given."""


class Counterfactual(Siblings):
    """A = R_t - mean of R_t over the other replies of the role in this state."""

    Config = CounterfactualConfig
    config: CounterfactualConfig
    needs: ClassVar[frozenset[Need]] = frozenset({"replays"})
    min_samples: ClassVar[int] = 1

    def advantages(self, group: Group) -> list[float]:
        return leave_one_out(reward_list(group))

    def _siblings(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        main_branch = set(episode.main_branch())
        for key, member in super()._siblings(episode):
            given = all(turn.links.step in main_branch for turn in member.turns)
            yield (
                key,
                member if given or self.config.train_alternatives else replace(member, turns=[]),
            )
