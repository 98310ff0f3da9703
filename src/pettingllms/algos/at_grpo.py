"""AT-GRPO: compare a reply with sibling replies to the same state (agent- and turn-wise grouping).

In multi-turn episodes GRPO compares replies to different prompts: by the second turn, two episodes
of one task have diverged. AT-GRPO samples K replies of the acting role from the same state, steps
each in a separate fork, and compares only those: same task, state, role and turn. Siblings differ
only in the reply, so the advantage credits the reply alone.

Dividing by the standard deviation gives every decision the same weight, however much depends on it.
Without the division and with `select = "sampled"`, the expected gradient is the exact policy
gradient.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pettingllms.algos.base import Algorithm, Need, reward_list, task_key
from pettingllms.algos.credit import centered, decisions, sibling_rewards, standardized
from pettingllms.config import AlgoConfig
from pettingllms.types import Episode, Group, Member, Scored


class Siblings(Algorithm):
    """Compares sibling replies of one role to the same state."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.grouped(part for episode in episodes for part in self._siblings(episode))

    def _siblings(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        for decision, siblings in decisions(episode).items():
            turns = [turn for turn in siblings if self.learns(turn)]
            rewards = sibling_rewards(episode, turns, self.reward)
            for turn, reward in zip(turns, rewards, strict=True):
                if isinstance(reward, Scored):
                    key = (*task_key(episode), episode.id, *decision)
                    yield key, Member([turn], reward.value)


class AtGrpoConfig(AlgoConfig):
    """Options of AT-GRPO."""

    standardize: bool = True
    """Whether advantages are divided by the standard deviation over the siblings."""


class AtGrpo(Siblings):
    """A = (R - mean) / std over the siblings of one decision of one role."""

    Config = AtGrpoConfig
    config: AtGrpoConfig
    needs: ClassVar[frozenset[Need]] = frozenset({"forks"})

    def advantages(self, group: Group) -> list[float]:
        scaled = standardized if self.config.standardize else centered
        return scaled(reward_list(group))
