"""Replay rollouts: re-sample a finished episode with one reply or one role changed.

Environments are pure, so an episode can be resumed at any of its steps. Either one reply is
replaced by other samples of its role for the same prompt, or a role is silent from its first turn.
Simultaneous replies of the same step stay fixed, because they cannot depend on the changed reply.
The current policies sample every later turn of all roles again, because the recorded turns react to
a reply that no longer exists. The episode is then one sample of "this reply and what follows", and
each replay is another sample.

If `max_extra_tokens` does not cover all turns, a random subset is drawn before any replay, so that
early and late turns are equally likely to be left out.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pettingllms.rollouts.context import Position, RolloutContext
from pettingllms.rollouts.env_calls import CallFailed
from pettingllms.rollouts.linear import linear_rollout
from pettingllms.rollouts.tree import (
    Fork,
    continue_forks,
    exclude_if_cut,
    make_fork,
    no_tokens_left,
    num_affordable,
    write_outcome,
)
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode


async def replay_rollout(context: RolloutContext, episode: Episode, path: int | str) -> None:
    """Sample an episode as linear rollouts do, then replay it."""
    visited: list[Position] = []
    await linear_rollout(context, episode, path, visited)
    if episode.failure is not None:
        return
    points = list(_decision_points(context, episode, visited))
    silent = context.config.replay == "silent"
    if silent:
        points = list({point.role: point for point in reversed(points)}.values())[::-1]
    random.Random(derive_seed("replays", episode.seed, path)).shuffle(points)
    number = 1 if silent else context.config.num_replays
    for point in points[: num_affordable(context, episode, number)]:
        if silent:
            await _remove_role(context, episode, point)
        else:
            await _resample_reply(context, episode, point)


@dataclass(frozen=True, slots=True)
class DecisionPoint:
    """A turn of the main branch and the position where it was sampled."""

    at: Position
    num_steps: int
    """Number of earlier steps."""
    joint_action: tuple[int, ...]
    """Indices of the turns that entered the same step."""
    index: int
    role: str

    def with_reply(self, other: int) -> tuple[int, ...]:
        """The joint action with another reply of this role."""
        return tuple(other if index == self.index else index for index in self.joint_action)


def _decision_points(
    context: RolloutContext, episode: Episode, visited: Sequence[Position]
) -> Iterator[DecisionPoint]:
    for step, at in enumerate(visited):
        joint_action = episode.steps[step].turns
        for index in joint_action:
            role = episode.turns[index].role
            if context.players[role].trained:
                yield DecisionPoint(at, step, joint_action, index, role)


async def _resample_reply(context: RolloutContext, episode: Episode, point: DecisionPoint) -> None:
    """Sample alternative replies for a turn of the main branch, and continue from each of them."""
    turn, number = episode.turns[point.index], context.config.num_replays
    at = Position(point.at.state, point.at.step, derive_seed(point.at.seed, "replay", point.role))
    each = (context.config.max_extra_tokens - episode.num_extra_tokens) // number
    others = await context.resample_turn(at, episode.task, turn, number, each)
    episode.num_extra_tokens += context.num_sampled(others)
    turn.links.branch = 0
    forks: dict[int, Fork] = {}
    for branch, other in enumerate(others, start=1):
        other.links.branch = branch
        is_short = each < context.config.reply_limit(turn.role) and other.num_tokens >= each
        if is_short and other.finish == "length":
            other.credit.failure = other.credit.failure or no_tokens_left(context)
        episode.turns.append(other)
        if other.credit.failure is None:
            index = len(episode.turns) - 1
            forks[index] = await make_fork(
                context, episode, at, point.with_reply(index), str(branch)
            )
    await continue_forks(context, episode, list(forks.values()), point.num_steps + 1)
    for index, fork in forks.items():
        write_outcome(episode.turns[index], fork)
    exclude_if_cut(others)


async def _remove_role(context: RolloutContext, episode: Episode, point: DecisionPoint) -> None:
    """Continue from the first turn of a role, with the role silent from there on."""
    at = point.at.after(point.at.state, point.at.step, "without", point.role)
    try:
        quiet = await context.silence(at, point.role)
    except CallFailed as failed:
        episode.without[point.role] = failed.failure
        return
    episode.turns.append(quiet)
    joint_action = point.with_reply(len(episode.turns) - 1)
    fork = await make_fork(context, episode, at, joint_action, "silent")
    silenced = replace(context, silent=point.role)
    await continue_forks(silenced, episode, [fork], point.num_steps + 1)
    write_outcome(quiet, fork)
    end = fork.failure or fork.last
    assert end is not None  # noqa: S101 - a fork failed or has a last step
    episode.without[point.role] = end
