"""Debate: an answer is paid for what it does to the answers after it (Park et al., 2025).

Where roles answer one question over rounds and see each other's answers, being right alone is not
the aim: being right must spread, and being wrong must not. So a role's score is shaped before it is
compared (see `shaping`): it gets a share of what everyone scores later, and prices for following a
majority and for leading others. A role is then compared with itself in the same round of the other
plays of the task: in round two everyone knows more than in round one.

Scores are the environment's process rewards. They should say how right an answer is; rewards for
an improvement are not scores. Keep the four prices below what a right answer scores over a wrong
one, or it pays to be wrong first and to come over later.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from pettingllms.algos.base import Algorithm, problem, reward_list
from pettingllms.algos.credit import shaped_reward, standardized
from pettingllms.algos.shaping import DebateConfig, shaped_score
from pettingllms.types import Episode, Failed, Group, Member, Reward, Scored, Turn


class Debate(Algorithm):
    """A = (shaped R_t - mean) / deviation over one role's answers in one round of the task."""

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
                yield (*problem(episode), turn.role, number), Member([turn], reward.value)


def _scored_turns(episode: Episode) -> Iterator[tuple[int, Turn, Reward | None]]:
    """Each reply of the play with its round (how often its role spoke before) and its score."""
    spoken = Counter[str]()
    for at in episode.main_branch():
        step = episode.steps[at]
        for turn in (episode.turns[index] for index in step.turns):
            yield (
                spoken[turn.role],
                turn,
                turn.credit.failure or step.rewards.process.get(turn.role),
            )
            spoken[turn.role] += 1
