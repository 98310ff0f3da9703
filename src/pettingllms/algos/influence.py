"""Shaped process rewards for any algorithm: copies of episodes that share the turns.

Algorithms read rewards from steps and write to turns. Shaping therefore replaces the steps and
keeps the turns, and the recorded rewards stay what the environment or a judge gave.

Round t of a role is its t-th turn. In a tree, an answer is shaped along its own branch: the rounds
before it, and the rounds of its continuation.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pettingllms.algos.shaping import Round, shaped_score
from pettingllms.config import InfluenceConfig
from pettingllms.types import Episode, Failed, Reward, Scored, Turn


def shape_episodes(episodes: Sequence[Episode], options: InfluenceConfig) -> list[Episode]:
    """Copies of the episodes with shaped process rewards."""
    return [shape_episode(episode, options) for episode in episodes]


def shape_episode(episode: Episode, options: InfluenceConfig) -> Episode:
    """A copy of an episode with the same turns and shaped process rewards."""
    branches: dict[int | None, Branch] = {}
    steps = list(episode.steps)
    for at, last in _ends(episode).items():
        if last not in branches:
            branches[last] = Branch.of(episode, last)
        process = branches[last].shaped(at, options)
        rewards = replace(steps[at].rewards, process=process)
        steps[at] = replace(steps[at], rewards=rewards)
    return replace(episode, steps=steps)


@dataclass(frozen=True, slots=True)
class Branch:
    """The rounds of one branch, from the first step to the last."""

    rounds: list[Round]
    scores: Mapping[int, Mapping[str, tuple[int, Reward | None]]]
    """By step and role: the round, and the reward of the answer."""

    @classmethod
    def of(cls, episode: Episode, last: int | None) -> "Branch":
        """The branch of an episode that ends with a step."""
        rounds: list[dict[str, float | None]] = []
        scores: dict[int, dict[str, tuple[int, Reward | None]]] = {}
        num_turns = Counter[str]()
        for at in list(episode.path(last))[::-1]:
            scores[at] = {}
            for role, reward in _answers(episode, at):
                number = num_turns[role]
                num_turns[role] += 1
                scores[at][role] = number, reward
                if number == len(rounds):
                    rounds.append({})
                if not isinstance(reward, Failed):
                    rounds[number][role] = None if reward is None else reward.value
        return cls(list(rounds), scores)

    def shaped(self, at: int, options: InfluenceConfig) -> dict[str, Reward]:
        """The shaped process rewards of a step. Failures stay; an answer without any score has no
        reward."""
        found: dict[str, Reward] = {}
        for role, (number, reward) in self.scores[at].items():
            if isinstance(reward, Failed):
                found[role] = reward
                continue
            value = shaped_score(self.rounds, role, number, options)
            if value is not None:
                found[role] = Scored(value)
        return found


def rounds_of(episode: Episode) -> Iterator[tuple[int, Turn]]:
    """The turns of the main branch with the number of earlier turns of their role."""
    num_turns = Counter[str]()
    for turn in episode.main_turns():
        yield num_turns[turn.role], turn
        num_turns[turn.role] += 1


def _answers(episode: Episode, at: int) -> Iterator[tuple[str, Reward | None]]:
    """The roles that answered in a step, with their rewards. Steps of continuations may have
    rewards without turns."""
    step = episode.steps[at]
    process = step.rewards.process
    turns = [episode.turns[index] for index in step.turns]
    for turn in turns:
        yield turn.role, turn.credit.failure or process.get(turn.role)
    acted = {turn.role for turn in turns}
    yield from ((role, reward) for role, reward in process.items() if role not in acted)


def _ends(episode: Episode) -> dict[int, int | None]:
    """The last step of the branch along which each step is shaped."""
    ends: dict[int, int | None] = dict.fromkeys(episode.main_branch(), episode.last)
    for turn in episode.turns:
        if turn.links.step is not None:
            ends[turn.links.step] = turn.links.last
    return ends
