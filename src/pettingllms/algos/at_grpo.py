"""AT-GRPO: a reply is compared with its siblings from the same state (agent- and turn-wise).

In a play of several turns, GRPO compares replies to different prompts: by the second turn two
plays of one task have gone different ways. AT-GRPO samples K replies of the acting role from one
and the same state, steps each in a fork of its own, and compares those alone: same task, same
state, same role, same turn. What differs between siblings is the reply, so the advantage is the
reply's own.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pettingllms.algos.base import Algorithm, Need, problem, reward_list
from pettingllms.algos.credit import standardized, turn_reward
from pettingllms.types import Episode, Group, Member, Scored


class AtGrpo(Algorithm):
    """A = (r - mean) / deviation over the siblings of one decision of one role."""

    needs: ClassVar[frozenset[Need]] = frozenset({"forks"})

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.grouped(part for episode in episodes for part in self._siblings(episode))

    def advantages(self, group: Group) -> list[float]:
        return standardized(reward_list(group))

    def _siblings(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        for turn in episode.turns:
            if turn.branch is None or turn.step is None or not self.learns(turn):
                continue
            reward = turn_reward(episode, turn, self.reward)
            if isinstance(reward, Scored):
                decision = (episode.id, episode.steps[turn.step].parent, turn.role)
                yield (*problem(episode), *decision), Member([turn], reward.value)
