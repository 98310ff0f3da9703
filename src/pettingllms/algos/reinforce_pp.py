"""REINFORCE++: compare a reply with all turns of its policy in the batch (Hu et al., 2025).

The mean and standard deviation of a whole batch have less variance than those of a few samples, and
one episode per task is enough. The cost is that hard tasks look like bad replies. The return of a
turn is the sum of rewards from it on, and each policy is normalized separately.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pettingllms.algos.base import Algorithm, reward_list
from pettingllms.algos.credit import standardized, turn_reward
from pettingllms.types import Episode, Group, Member, Scored


class ReinforcePp(Algorithm):
    """A = (R_t - mean) / std over all turns of the policy in the batch."""

    min_samples: ClassVar[int] = 1

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.grouped(part for episode in episodes for part in self._turns(episode))

    def advantages(self, group: Group) -> list[float]:
        return standardized(reward_list(group))

    def _turns(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        for turn in episode.turns:
            reward = turn_reward(episode, turn, self.reward)
            if self.learns(turn) and isinstance(reward, Scored):
                yield (turn.policy,), Member([turn], reward.value)
