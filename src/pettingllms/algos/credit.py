"""Credit assignment: from rewards at three levels to the return of a turn, a role or a team.

This is the only module that mixes reward levels.
"""

import math
from collections.abc import Sequence

from pettingllms.config import RewardConfig
from pettingllms.types import Episode, Failed, Reward, Scored, Step, Turn, total

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it."""


UNLIKE_ENDS = Failed(
    "siblings differ in whether they end the episode, and were not continued "
    "(rollout.continuation)",
    "environment",
)
"""The failure of siblings whose returns are not comparable."""
Levels = tuple[Reward | None, Reward | None, Reward | None]
"""Rewards at the levels process, agent and team."""


def turn_reward(episode: Episode, turn: Turn, mix: RewardConfig) -> Reward:
    """The return of a turn: its rewards and those after it, mixed over the levels."""
    if turn.credit.failure is not None:
        return turn.credit.failure
    return _penalized(_mixed(turn_levels(episode, turn), mix), [turn], mix)


def decisions(episode: Episode) -> dict[tuple[int | None, str], list[Turn]]:
    """Sibling replies of one role to one state, by the previous step and the role."""
    found: dict[tuple[int | None, str], list[Turn]] = {}
    for turn in episode.turns:
        if turn.links.branch is not None and turn.links.step is not None:
            found.setdefault((episode.steps[turn.links.step].parent, turn.role), []).append(turn)
    return found


def sibling_rewards(episode: Episode, turns: Sequence[Turn], mix: RewardConfig) -> list[Reward]:
    """The rewards or returns by which sibling replies to one state are compared.

    A process reward is known at once: siblings without one got 0. Agent and team rewards are known
    at the end of an episode. If all siblings reached the end, a missing reward is 0 as well. If
    none did, a missing reward is unknown, and a level counts only if all siblings have it. If only
    some did, the siblings are not comparable.
    """
    good = [turn for turn in turns if turn.credit.failure is None]
    if differ_in_end(episode, good):
        return [turn.credit.failure or UNLIKE_ENDS for turn in turns]
    levels = {id(turn): turn_levels(episode, turn) for turn in good}
    is_over = _were_continued(good) or all(_is_final(episode, turn) for turn in good)
    each = zip(*levels.values(), strict=True)
    counts = [
        any(rewards) if known else all(rewards)
        for known, rewards in zip((True, is_over, is_over), each, strict=False)
    ]
    return [
        turn.credit.failure or _penalized(_mixed(_only(counts, levels[id(turn)]), mix), [turn], mix)
        for turn in turns
    ]


def differ_in_end(episode: Episode, siblings: Sequence[Turn]) -> bool:
    """Whether only some siblings ended the episode and the others were not continued."""
    good = [turn for turn in siblings if turn.credit.failure is None]
    ended = {_is_final(episode, turn) for turn in good}
    return len(ended) > 1 and not _were_continued(good)


def _were_continued(siblings: Sequence[Turn]) -> bool:
    """Whether siblings were continued to the end; then all of them reached it."""
    return any(turn.links.last != turn.links.step for turn in siblings)


def _is_final(episode: Episode, turn: Turn) -> bool:
    return turn.links.step is not None and episode.steps[turn.links.step].final


def role_reward(episode: Episode, role: str, mix: RewardConfig) -> Reward:
    """The return of a role over the main branch of an episode."""
    if episode.failure is not None:
        return episode.failure
    reward = _mixed(role_levels(episode, role), mix)
    if not mix.overlong_buffer:
        return reward
    return _penalized(reward, [turn for turn in episode.main_turns() if turn.role == role], mix)


def role_levels(episode: Episode, role: str) -> Levels:
    """The return of a role over the main branch, per level."""
    steps = [episode.steps[at] for at in episode.main_branch()]
    return _levels(steps, steps, role)


def reward_without(episode: Episode, role: str, mix: RewardConfig) -> Reward:
    """A role's return in the replay in which it was silent.

    Its process reward counts as 0: a penalty for silence must not raise the advantage of replying.
    A replay reaches the end of the episode, so missing agent and team rewards are 0 as well.
    """
    last = episode.without[role]
    if isinstance(last, Failed):
        return last
    _, agent, team = _levels([], [episode.steps[at] for at in episode.path(last)], role)
    zero = Scored(0.0)
    return _mixed((zero, agent or zero, team or zero), mix)


def team_reward(episode: Episode, first: int, mix: RewardConfig) -> Reward:
    """The return of the team from one step of the main branch to the end."""
    if episode.failure is not None:
        return episode.failure
    steps = [episode.steps[at] for at in episode.path(episode.last, first)]
    reward = _mixed((None, None, total(step.rewards.team for step in steps)), mix)
    return _penalized(reward, [episode.turns[at] for step in steps for at in step.turns], mix)


def rewards_between(episode: Episode, turns: Sequence[Turn], mix: RewardConfig) -> list[float]:
    """The rewards of a role between consecutive turns on the main branch, and after the last one.

    For roles with a known return: a step without a reward then counts as zero.
    """
    main_branch = [episode.steps[at] for at in episode.main_branch()]
    depth = {id(episode.turns[index]): at for at, s in enumerate(main_branch) for index in s.turns}
    firsts = [depth[id(turn)] for turn in turns]
    spans = zip(firsts, [*firsts[1:], len(main_branch)], strict=True)
    between = [main_branch[first:after] for first, after in spans]
    return [
        _or_zero(_mixed(_levels(steps, steps, turn.role), mix)) - _penalty([turn], mix)
        for steps, turn in zip(between, turns, strict=True)
    ]


def team_rewards(episode: Episode, steps: Sequence[int], mix: RewardConfig) -> list[float]:
    """The team reward of each step, zero if absent, for teams with a known return."""
    return [
        _or_zero(_mixed((None, None, episode.steps[at].rewards.team), mix))
        - _penalty([episode.turns[index] for index in episode.steps[at].turns], mix)
        for at in steps
    ]


def _penalized(reward: Reward, turns: Sequence[Turn], mix: RewardConfig) -> Reward:
    """A return minus the length penalties of the replies that count toward it."""
    if not mix.overlong_buffer or not isinstance(reward, Scored):
        return reward
    return Scored(reward.value - _penalty(turns, mix))


def _penalty(turns: Sequence[Turn], mix: RewardConfig) -> float:
    """Length penalties of the replies that a policy wrote."""
    written = (turn for turn in turns if turn.policy_version is not None)
    return math.fsum(mix.length_penalty(turn.num_tokens) for turn in written)


def _or_zero(reward: Reward) -> float:
    return reward.value if isinstance(reward, Scored) else 0.0


def turn_levels(episode: Episode, turn: Turn) -> Levels:
    """The process reward of a reply, and the agent and team rewards from its step on."""
    steps = episode.reward_steps(turn)
    return _levels(steps[:1], steps, turn.role)


def _levels(replied: Sequence[Step], steps: Sequence[Step], role: str) -> Levels:
    return (
        total([step.rewards.process.get(role) for step in replied]),
        total([step.rewards.agent.get(role) for step in steps]),
        total([step.rewards.team for step in steps]),
    )


def _only(counts: Sequence[bool], levels: Levels) -> Levels:
    """The levels that count, with missing rewards as zero; None for the other levels."""
    process, agent, team = (
        (reward or Scored(0.0)) if counted else None
        for reward, counted in zip(levels, counts, strict=True)
    )
    return process, agent, team


def _mixed(levels: Levels, mix: RewardConfig) -> Reward:
    """The weighted sum over levels. Levels with weight 0 are ignored, even if they failed."""
    weights = (mix.process, mix.agent, mix.team)
    rewards = [_scaled(w, level) for w, level in zip(weights, levels, strict=True) if w]
    return total(rewards) or Failed("no reward at any level with a nonzero weight", "environment")


def _scaled(weight: float, reward: Reward | None) -> Reward | None:
    return Scored(weight * reward.value) if isinstance(reward, Scored) else reward


def mean(rewards: Sequence[float]) -> float:
    """The mean, summed exactly, so that it does not depend on the order of turns."""
    return math.fsum(rewards) / len(rewards)


def centered(rewards: Sequence[float]) -> list[float]:
    """Each reward minus the mean; exact zeros if all are equal."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    middle = mean(rewards)
    return [reward - middle for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """Each reward minus the mean of the others; zeros if all are equal."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    return [offset * len(rewards) / (len(rewards) - 1) for offset in centered(rewards)]


def standardized(rewards: Sequence[float]) -> list[float]:
    """Each reward minus the mean, divided by the unbiased standard deviation; zeros if all are
    equal."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    offsets = centered(rewards)
    deviation = math.sqrt(math.fsum(offset**2 for offset in offsets) / (len(rewards) - 1))
    return [offset / (deviation + EPSILON) for offset in offsets]
