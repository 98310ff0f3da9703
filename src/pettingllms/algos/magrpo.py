"""MAGRPO: compare joint actions of a team between episodes (Liu et al., 2025).

A cooperative team has one reward, hence one advantage that all roles share. The return from a turn
on is compared with the returns of other episodes from the same turn on, without division by the
standard deviation. Only team rewards count; use `dr_mas` for roles with separate rewards.
"""

from collections.abc import Iterator, Sequence

from pettingllms.algos.base import Algorithm, reward_list, task_key
from pettingllms.algos.credit import centered, team_reward
from pettingllms.types import Episode, Group, Member, Scored


class Magrpo(Algorithm):
    """A = R_t - mean of R_t over the episodes of the task, shared by all roles."""

    team_only = True

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
                yield (*task_key(episode), depth), Member(turns, reward.value)
