"""Counterfactual credit: compare a reply with other replies of its role to the same state.

A team reward depends on many replies. Compared between episodes, a reply is credited with what its
teammates happened to do before it. The counterfactual baseline of COMA (Foerster et al., 2018) is
the expected return had this role replied otherwise in the same state. COMA estimates it with a
critic. Environments here are pure, so it is measured: the episode is resumed in that state with
other replies of the role (replay rollouts).

The current policies sample every later turn again, those of teammates too, because later turns
react to the reply. The episode is itself one sample of its reply and what follows, so it is
compared with the replays on equal terms, and the expected gradient is the exact policy gradient.
Only simultaneous replies of the same step stay fixed, because they cannot react.

The alternative replies are samples of the same policy for the same prompt, so each of them can be
compared with the others and trained on, at no further cost.
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
    """Whether alternative replies are trained on too, each compared with the others. If not, they
    serve only as the baseline of the original reply."""


class Counterfactual(Siblings):
    """A = R_t - mean of R_t over the other replies of the role to this state."""

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
