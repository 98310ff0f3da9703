"""Remove role: the episode's return, less the return of an episode in which the role is silent.

A difference reward (Wolpert & Tumer, 2002) is the team's reward less the reward with one member's
part put to a fixed value. The fixed value here is silence, which the environment defines
(`Environment.silence`). From the role's first turn on all other roles are sampled again, since they
react to the silence. So the replay is independent of what the role said in the episode, and
subtracting its return leaves the expected gradient exact, whatever silence is.

What it buys is less noise where much of the reward does not depend on the role. The difference is
not centered: if a team needs the role at all, most of its replies are pushed up, good ones more.
All turns of the role share one number: what the role was good for, not which of its replies was.
`counterfactual` tells those apart, and costs replays for every turn.
"""

from collections.abc import Sequence
from typing import ClassVar

from pettingllms.algos.base import Algorithm, Need, problem, reward_list
from pettingllms.algos.credit import reward_without
from pettingllms.types import Episode, Group, Member, Scored


class RemoveRole(Algorithm):
    """A = R - R of a replay without the role."""

    needs: ClassVar[frozenset[Need]] = frozenset({"replays", "silence"})
    min_samples: ClassVar[int] = 1

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        groups = []
        for episode, role, played in self.plays(episodes):
            if role not in episode.without:
                continue
            reward = reward_without(episode, role, self.reward)
            if isinstance(reward, Scored):
                key = (*problem(episode), episode.id, role)
                groups.append(Group(key, [played, Member([], reward.value)]))
        return groups

    def advantages(self, group: Group) -> list[float]:
        played, without = reward_list(group)
        return [played - without, 0.0]
