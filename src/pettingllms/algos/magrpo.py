"""MAGRPO: a team's joint reply is compared with the team's other joint replies (Liu et al., 2025).

A cooperative team has one reward, so it has one advantage: all roles share it. The return from a
turn on is compared with the returns of the other plays from the same turn on, and is not divided
by the deviation. Only team rewards count; for a team whose roles are paid apart, use `dr_mas`.
"""

from collections.abc import Iterator, Sequence

from pettingllms.algos.base import Algorithm, problem, reward_list
from pettingllms.algos.credit import centered, team_reward
from pettingllms.types import Episode, Group, Member, Scored


class Magrpo(Algorithm):
    """A = R_t - mean of R_t over the plays of the task, the same for every role."""

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.grouped(part for episode in episodes for part in self._joint_actions(episode))

    def advantages(self, group: Group) -> list[float]:
        return centered(reward_list(group))

    def _joint_actions(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        for depth, at in enumerate(episode.main_branch()):
            turns = [episode.turns[index] for index in episode.steps[at].turns]
            turns = [turn for turn in turns if self.learns(turn)]
            reward = team_reward(episode, at, self.reward)
            if turns and isinstance(reward, Scored):
                yield (*problem(episode), depth), Member(turns, reward.value)
