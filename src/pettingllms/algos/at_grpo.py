"""AT-GRPO: a reply is compared with its siblings from the same state (agent- and turn-wise).

In a play of several turns, GRPO compares replies to different prompts: by the second turn two
plays of one task have gone different ways. AT-GRPO samples K replies of the acting role from one
and the same state, steps each in a fork of its own, and compares those alone: same task, same
state, same role, same turn. What differs between siblings is the reply, so the advantage is the
reply's own.

Division by the deviation gives every decision the same weight, whether much or little depends on
it. Without it, and with `select = "sampled"`, the expected gradient is the exact policy gradient.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pettingllms.algos.base import Algorithm, Need, problem, reward_list
from pettingllms.algos.credit import centered, decisions, sibling_rewards, standardized
from pettingllms.config import AlgoConfig
from pettingllms.types import Episode, Group, Member, Scored


class Siblings(Algorithm):
    """Compares replies of one role to one and the same state."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.grouped(part for episode in episodes for part in self._siblings(episode))

    def _siblings(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        for decision, siblings in decisions(episode).items():
            turns = [turn for turn in siblings if self.learns(turn)]
            rewards = sibling_rewards(episode, turns, self.reward)
            for turn, reward in zip(turns, rewards, strict=True):
                if isinstance(reward, Scored):
                    key = (*problem(episode), episode.id, *decision)
                    yield key, Member([turn], reward.value)


class AtGrpoConfig(AlgoConfig):
    """Options of AT-GRPO."""

    standardize: bool = True
    """Whether advantages are divided by the deviation of their siblings."""


class AtGrpo(Siblings):
    """A = (r - mean) / deviation over the siblings of one decision of one role."""

    Config = AtGrpoConfig
    config: AtGrpoConfig
    needs: ClassVar[frozenset[Need]] = frozenset({"forks"})

    def advantages(self, group: Group) -> list[float]:
        scaled = standardized if self.config.standardize else centered
        return scaled(reward_list(group))
