"""From what was paid to one number a turn answers for: the only place where levels are mixed."""

import math
from collections.abc import Sequence

from pettingllms.config import RewardConfig
from pettingllms.types import Episode, Failed, Reward, Scored, Step, Turn, total

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it."""


def turn_reward(episode: Episode, turn: Turn, mix: RewardConfig) -> Reward:
    """What this reply was paid, and what its role and team were paid from here on."""
    if turn.failure is not None:
        return turn.failure
    steps = episode.judged_by(turn)
    return _mixed(steps[:1], steps, turn.role, mix)


def role_reward(episode: Episode, role: str, mix: RewardConfig) -> Reward:
    """What a role was paid over the whole play, its replies included."""
    if episode.failure is not None:
        return episode.failure
    steps = [episode.steps[at] for at in episode.trunk()]
    return _mixed(steps, steps, role, mix)


def team_reward(episode: Episode, first: int) -> Reward:
    """What the team was paid from one step of the trunk to the end."""
    if episode.failure is not None:
        return episode.failure
    steps = [episode.steps[at] for at in episode.path(episode.last, first)]
    return total(step.rewards.team for step in steps) or _unpaid("the team")


def _mixed(replied: Sequence[Step], steps: Sequence[Step], role: str, mix: RewardConfig) -> Reward:
    levels = (
        (mix.process, total(step.rewards.process.get(role) for step in replied)),
        (mix.agent, total(step.rewards.agent.get(role) for step in steps)),
        (mix.team, total(step.rewards.team for step in steps)),
    )
    return total(_scaled(weight, paid) for weight, paid in levels if weight) or _unpaid(role)


def _scaled(weight: float, reward: Reward | None) -> Reward | None:
    return Scored(weight * reward.value) if isinstance(reward, Scored) else reward


def _unpaid(who: str) -> Failed:
    return Failed(f"{who} was paid nothing on any level that has a weight", "environment")


def mean(rewards: Sequence[float]) -> float:
    """The mean, summed exactly so that the order of turns cannot matter."""
    return math.fsum(rewards) / len(rewards)


def centered(rewards: Sequence[float]) -> list[float]:
    """Each reward less the mean of all."""
    middle = mean(rewards)
    return [reward - middle for reward in rewards]


def standardized(rewards: Sequence[float]) -> list[float]:
    """Each reward less the mean, over the (unbiased) standard deviation; zeros if all are equal."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    offsets = centered(rewards)
    deviation = math.sqrt(math.fsum(offset**2 for offset in offsets) / (len(rewards) - 1))
    return [offset / (deviation + EPSILON) for offset in offsets]
