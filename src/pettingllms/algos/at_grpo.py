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
from pettingllms.algos.credit import sibling_rewards, standardized
from pettingllms.types import Episode, Group, Member, Scored, Turn


class AtGrpo(Algorithm):
    """A = (r - mean) / deviation over the siblings of one decision of one role."""

    needs: ClassVar[frozenset[Need]] = frozenset({"forks"})

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.grouped(part for episode in episodes for part in self._siblings(episode))

    def advantages(self, group: Group) -> list[float]:
        return standardized(reward_list(group))

    def _siblings(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        decisions: dict[tuple[int | None, str], list[Turn]] = {}
        for turn in episode.turns:
            if turn.branch is not None and turn.step is not None and self.learns(turn):
                parent = episode.steps[turn.step].parent
                decisions.setdefault((parent, turn.role), []).append(turn)
        for decision, turns in decisions.items():
            rewards = sibling_rewards(episode, turns, self.reward)
            for turn, reward in zip(turns, rewards, strict=True):
                if isinstance(reward, Scored):
                    key = (*problem(episode), episode.id, *decision)
                    yield key, Member([turn], reward.value)
