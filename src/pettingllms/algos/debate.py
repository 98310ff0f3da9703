"""Debate: shape rewards by how an answer changes later answers (Park et al., 2025).

Where roles answer one question over several rounds and read each other's answers, correct answers
should spread and wrong ones should not. A role's score is therefore shaped before it is compared
(see `shaping`): it gets a share of the scores of later rounds, bonuses for following or leading
others toward the correct answer, and penalties for the opposite. A role is then compared with
itself in the same round of other episodes of the task, because later rounds have more information.

Scores are the environment's process rewards and should measure correctness, not improvement. Keep
the four coefficients below the score difference between correct and wrong answers. Otherwise being
wrong first and switching later maximizes the return.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from pettingllms.algos.base import Algorithm, reward_list, task_key
from pettingllms.algos.credit import shaped_reward, standardized
from pettingllms.algos.shaping import DebateConfig, shaped_score
from pettingllms.types import Episode, Failed, Group, Member, Reward, Scored, Turn


class Debate(Algorithm):
    """A = (shaped R_t - mean) / std over the answers of one role in one round of the task."""

    Config = DebateConfig
    config: DebateConfig

    def groups(self, episodes: Sequence[Episode]) -> list[Group]:
        return self.grouped(part for episode in episodes for part in self._answers(episode))

    def advantages(self, group: Group) -> list[float]:
        return standardized(reward_list(group))

    def _answers(self, episode: Episode) -> Iterator[tuple[tuple[object, ...], Member]]:
        answers = list(_scored_turns(episode))
        rounds: list[dict[str, float | None]] = []
        for number, turn, score in answers:
            if number == len(rounds):
                rounds.append({})
            if not isinstance(score, Failed):
                rounds[number][turn.role] = None if score is None else score.value
        for number, turn, score in answers:
            shaped = score
            if not isinstance(score, Failed):
                value = shaped_score(rounds, turn.role, number, self.config)
                shaped = None if value is None else Scored(value)
            reward = shaped_reward(episode, turn, shaped, self.reward)
            if self.learns(turn) and isinstance(reward, Scored):
                yield (*task_key(episode), turn.role, number), Member([turn], reward.value)


def _scored_turns(episode: Episode) -> Iterator[tuple[int, Turn, Reward | None]]:
    """Each reply of the main branch with its round (earlier turns of its role) and its score."""
    num_turns = Counter[str]()
    for at in episode.main_branch():
        step = episode.steps[at]
        for turn in (episode.turns[index] for index in step.turns):
            yield (
                num_turns[turn.role],
                turn,
                turn.credit.failure or step.rewards.process.get(turn.role),
            )
            num_turns[turn.role] += 1
