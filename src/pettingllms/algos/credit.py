"""From what was paid to one number a turn answers for: the only place where levels are mixed."""

import math
from collections.abc import Sequence

from pettingllms.config import RewardConfig
from pettingllms.types import Episode, Failed, Reward, Scored, Step, Turn, total

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it."""


UNLIKE_ENDS = Failed(
    "siblings differ in whether they end the episode, and were not played on "
    "(rollout.continuation)",
    "environment",
)
"""Why such siblings are not compared."""
Levels = tuple[Reward | None, Reward | None, Reward | None]
"""What was paid at the levels of process, agent and team."""


def turn_reward(episode: Episode, turn: Turn, mix: RewardConfig) -> Reward:
    """The levels of what a turn answers for, mixed."""
    if turn.credit.failure is not None:
        return turn.credit.failure
    return _mixed(turn_levels(episode, turn), mix)


def shaped_reward(
    episode: Episode, turn: Turn, process: Reward | None, mix: RewardConfig
) -> Reward:
    """As `turn_reward`, with a number that the whole play decides in the place of the reply's."""
    failure = episode.failure or turn.credit.failure
    if failure is not None:
        return failure
    _, agent, team = turn_levels(episode, turn)
    return _mixed((process, agent, team), mix)


def decisions(episode: Episode) -> dict[tuple[int | None, str], list[Turn]]:
    """Replies of one role to one state, by the step before them and the role."""
    found: dict[tuple[int | None, str], list[Turn]] = {}
    for turn in episode.turns:
        if turn.links.branch is not None and turn.links.step is not None:
            found.setdefault((episode.steps[turn.links.step].parent, turn.role), []).append(turn)
    return found


def sibling_rewards(episode: Episode, turns: Sequence[Turn], mix: RewardConfig) -> list[Reward]:
    """What replies to one and the same state are compared by.

    A process reward is known at once: siblings without one got 0. Outcomes are known at the end of
    an episode. If all siblings reached it, a reward that one of them did not get is 0 too. If none
    did, "not yet" is not 0, and agent or team count only if all siblings have them. If only some
    did, nothing can be compared: their outcome is known, and that of the others is not.
    """
    good = [turn for turn in turns if turn.credit.failure is None]
    if differ_in_end(episode, good):
        return [turn.credit.failure or UNLIKE_ENDS for turn in turns]
    levels = {id(turn): turn_levels(episode, turn) for turn in good}
    is_over = _were_played_on(good) or all(_is_final(episode, turn) for turn in good)
    each = zip(*levels.values(), strict=True)
    counts = [
        any(paid) if known else all(paid)
        for known, paid in zip((True, is_over, is_over), each, strict=False)
    ]
    return [turn.credit.failure or _mixed(_only(counts, levels[id(turn)]), mix) for turn in turns]


def differ_in_end(episode: Episode, siblings: Sequence[Turn]) -> bool:
    """Whether some siblings ended the episode and others did not, and were not played on."""
    good = [turn for turn in siblings if turn.credit.failure is None]
    ended = {_is_final(episode, turn) for turn in good}
    return len(ended) > 1 and not _were_played_on(good)


def _were_played_on(siblings: Sequence[Turn]) -> bool:
    """Whether siblings were played to the end: then each of them has reached it."""
    return any(turn.links.last != turn.links.step for turn in siblings)


def _is_final(episode: Episode, turn: Turn) -> bool:
    return turn.links.step is not None and episode.steps[turn.links.step].final


def role_reward(episode: Episode, role: str, mix: RewardConfig) -> Reward:
    """What a role was paid over the whole play, its replies included."""
    if episode.failure is not None:
        return episode.failure
    return _mixed(role_levels(episode, role), mix)


def role_levels(episode: Episode, role: str) -> Levels:
    """What a role was paid over the whole play at each level."""
    steps = [episode.steps[at] for at in episode.main_branch()]
    return _levels(steps, steps, role)


def reward_without(episode: Episode, role: str, mix: RewardConfig) -> Reward:
    """A role's return in the replay in which it was silent.

    Its process reward counts as 0: if the environment penalizes silence, that is no merit of a role
    that speaks. A replay reaches its end, so an outcome that it did not get is 0 as well.
    """
    last = episode.without[role]
    if isinstance(last, Failed):
        return last
    _, agent, team = _levels([], [episode.steps[at] for at in episode.path(last)], role)
    nothing = Scored(0.0)
    return _mixed((nothing, agent or nothing, team or nothing), mix)


def team_reward(episode: Episode, first: int, mix: RewardConfig) -> Reward:
    """What the team was paid from one step of the trunk to the end."""
    if episode.failure is not None:
        return episode.failure
    steps = [episode.steps[at] for at in episode.path(episode.last, first)]
    return _mixed((None, None, total(step.rewards.team for step in steps)), mix)


def rewards_between(episode: Episode, turns: Sequence[Turn], mix: RewardConfig) -> list[float]:
    """What a role was paid from each of its turns on the trunk to its next one, or to the end.

    For a role that was paid at all: that a step between paid nothing is then known, and is zero.
    """
    main_branch = [episode.steps[at] for at in episode.main_branch()]
    depth = {id(episode.turns[index]): at for at, s in enumerate(main_branch) for index in s.turns}
    firsts = [depth[id(turn)] for turn in turns]
    return [
        _or_zero(
            _mixed(_levels(main_branch[first:after], main_branch[first:after], turns[0].role), mix)
        )
        for first, after in zip(firsts, [*firsts[1:], len(main_branch)], strict=True)
    ]


def team_rewards(episode: Episode, steps: Sequence[int], mix: RewardConfig) -> list[float]:
    """What the team was paid in each of these steps, for a team that was paid at all."""
    return [_or_zero(_mixed((None, None, episode.steps[at].rewards.team), mix)) for at in steps]


def _or_zero(reward: Reward) -> float:
    return reward.value if isinstance(reward, Scored) else 0.0


def turn_levels(episode: Episode, turn: Turn) -> Levels:
    """What this reply was paid, and what its role and team were paid from here on."""
    steps = episode.judged_by(turn)
    return _levels(steps[:1], steps, turn.role)


def _levels(replied: Sequence[Step], steps: Sequence[Step], role: str) -> Levels:
    return (
        total([step.rewards.process.get(role) for step in replied]),
        total([step.rewards.agent.get(role) for step in steps]),
        total([step.rewards.team for step in steps]),
    )


def _only(counts: Sequence[bool], levels: Levels) -> Levels:
    """The levels that count; at those that do, nothing is zero."""
    process, agent, team = (
        (paid or Scored(0.0)) if counted else None
        for paid, counted in zip(levels, counts, strict=True)
    )
    return process, agent, team


def _mixed(levels: Levels, mix: RewardConfig) -> Reward:
    """The weighted sum; a level without weight does not count, not even if it failed."""
    weights = (mix.process, mix.agent, mix.team)
    paid = [_scaled(w, level) for w, level in zip(weights, levels, strict=True) if w]
    return total(paid) or Failed("nothing was paid at any level that has a weight", "environment")


def _scaled(weight: float, reward: Reward | None) -> Reward | None:
    return Scored(weight * reward.value) if isinstance(reward, Scored) else reward


def mean(rewards: Sequence[float]) -> float:
    """The mean, summed exactly so that the order of turns cannot matter."""
    return math.fsum(rewards) / len(rewards)


def centered(rewards: Sequence[float]) -> list[float]:
    """Each reward less the mean of all; zeros if all are equal, which their mean need not be."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    middle = mean(rewards)
    return [reward - middle for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """Each reward less the mean of the others; zeros if all are equal."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    return [offset * len(rewards) / (len(rewards) - 1) for offset in centered(rewards)]


def standardized(rewards: Sequence[float]) -> list[float]:
    """Each reward less the mean, over the (unbiased) standard deviation; zeros if all are equal."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    offsets = centered(rewards)
    deviation = math.sqrt(math.fsum(offset**2 for offset in offsets) / (len(rewards) - 1))
    return [offset / (deviation + EPSILON) for offset in offsets]
