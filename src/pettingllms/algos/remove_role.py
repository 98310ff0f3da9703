"""Remove role: the return of an episode minus the return of a replay in which the role is silent.

A difference reward (Wolpert & Tumer, 2002) is the team reward minus the reward with one member's
action set to a fixed value. That value here is silence, as defined by the environment
(`Environment.silence`). From the role's first turn on all other roles are sampled again, since they
react to the silence. The replay is thus independent of the role's replies, and subtracting its
return as a baseline keeps the expected gradient exact, whatever silence is.

The baseline reduces variance where much of the reward does not depend on the role. The difference
is not centered: if the team needs the role, most of its replies get positive advantages, and good
ones larger ones. All turns of the role share one advantage. `counterfactual` credits single
replies, at the cost of replays per turn.
"""

from collections.abc import Sequence
from typing import ClassVar

from pettingllms.algos.base import Algorithm, Need, reward_list, task_key
from pettingllms.algos.credit import reward_without
from pettingllms.types import Episode, Group, Member, Scored


class RemoveRole(Algorithm):
    """A = R - R of a replay without the role."""

    needs: ClassVar[frozenset[Need]] = frozenset({"replays", "silence"})
    min_samples: ClassVar[int] = 1

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        groups = []
        for episode, role, played in self.role_returns(episodes):
            if role not in episode.without:
                continue
            reward = reward_without(episode, role, self.reward)
            if isinstance(reward, Scored):
                key = (*task_key(episode), episode.id, role)
                groups.append(Group(key, [played, Member([], reward.value)]))
        return groups

    def advantages(self, group: Group) -> list[float]:
        played, without = reward_list(group)
        return [played - without, 0.0]
