"""Debate: shape rewards by how an answer changes later answers (Park et al., 2025).

Where roles answer one question over several rounds and read each other's answers, correct answers
should spread and wrong ones should not. A role's score is therefore shaped before it is compared
(see `influence`): it gets a share of the scores of later rounds, bonuses for following or leading
others toward the correct answer, and penalties for the opposite. A role is then compared with
itself in the same round of other episodes of the task, because later rounds have more information.

Scores are the environment's process rewards and should measure correctness, not improvement. Keep
the four coefficients below the score difference between correct and wrong answers. Otherwise being
wrong first and switching later maximizes the return.

`[reward.influence]` applies the same shaping with any other algorithm. This one differs in what it
compares: the answers of one role in one round.
"""

from collections.abc import Iterator, Sequence

from pettingllms.algos.base import Algorithm, reward_list, task_key
from pettingllms.algos.credit import standardized, turn_reward
from pettingllms.algos.influence import rounds_of, shape_episodes
from pettingllms.config import AlgoConfig, InfluenceConfig
from pettingllms.types import Episode, Group, Member, Scored


class DebateConfig(InfluenceConfig, AlgoConfig):
    """Options of debate: those of influence shaping."""


class Debate(Algorithm):
    """A = (shaped R_t - mean) / std over the answers of one role in one round of the task."""

    Config = DebateConfig
    config: DebateConfig

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        shaped = shape_episodes(episodes, self.config)
        return self.grouped(part for episode in shaped for part in self._answers(episode))

    def advantages(self, group: Group) -> list[float]:
        return standardized(reward_list(group))

    def _answers(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        for number, turn in rounds_of(episode):
            reward = episode.failure or turn_reward(episode, turn, self.reward)
            if self.learns(turn) and isinstance(reward, Scored):
                yield (*task_key(episode), turn.role, number), Member([turn], reward.value)
