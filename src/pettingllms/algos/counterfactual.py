"""Counterfactual: a reply is compared with others of its role while all else stays as it was.

In a team one reward answers for many replies. Compared between plays, a reply is praised or blamed
for what its teammates happened to say in that play. The counterfactual baseline (Foerster et al.,
2018, COMA) is what the same play would have paid on average had this role said something else here,
with every other reply fixed. There it is the guess of a critic. Environments here are pure, so it
is measured: the episode is replayed with other replies of the role from the very same state.

The difference is the reply's own. A role whose replies do not matter gets exactly 0, and what
teammates added by luck is on both sides. Replies of others stay fixed even where they would have
reacted: what is measured is the reply in this play, not the policy's worth in all plays.

The other replies are samples of the same policy to the same prompt, so each can be compared with
the rest in its turn, and trained on, at no further cost.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from pettingllms.algos.at_grpo import AtGrpo
from pettingllms.algos.base import Need, reward_list
from pettingllms.algos.credit import leave_one_out
from pettingllms.config import AlgoConfig
from pettingllms.types import Episode, Group, Member


class CounterfactualConfig(AlgoConfig):
    """Options of counterfactual credit."""

    train_alternatives: bool = True
    """Whether the other replies are trained on too, each compared with the rest. If not, they only
    are the baseline of the reply that was given."""


class Counterfactual(AtGrpo):
    """A = R_t - mean of R_t over the other replies of the role in this state, the rest replayed."""

    Config = CounterfactualConfig
    config: CounterfactualConfig
    needs: ClassVar[frozenset[Need]] = frozenset({"replays"})
    min_samples: ClassVar[int] = 1

    def advantages(self, group: Group) -> list[float]:
        return leave_one_out(reward_list(group))

    def _siblings(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        trunk = set(episode.trunk())
        for key, member in super()._siblings(episode):
            given = all(turn.step in trunk for turn in member.turns)
            yield (
                key,
                member if given or self.config.train_alternatives else replace(member, turns=[]),
            )
