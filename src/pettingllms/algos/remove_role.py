"""Remove role: what the play was paid, less what it would have been paid had the role been silent.

A difference reward (Wolpert & Tumer, 2002) is the team's reward less the reward with one member's
part put to a fixed value. Whatever raises the difference raises the team's reward, as the second
term does not depend on what the member did; and all that the others earned without it cancels, so a
member that does nothing for the team gets exactly 0, and one that hurts gets less. The fixed value
here is silence, which the environment defines (`Environment.silence`). One replay a role is enough,
and it samples nothing unless the play goes on for longer than the record.

All turns of the role share the difference: it says what the role was good for in this play, not
which of its replies was. `counterfactual` tells those apart and costs replays for every turn. The
difference is not centered: where a team needs the role at all, most replies are pushed up.
"""

from collections.abc import Sequence
from typing import ClassVar

from pettingllms.algos.base import Algorithm, Need, problem, reward_list
from pettingllms.algos.credit import reward_without
from pettingllms.types import Episode, Group, Member, Scored


class RemoveRole(Algorithm):
    """A = R - R without the role, the rest replayed."""

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
