"""Replay rollouts: a finished episode is played again with one thing changed.

Environments are pure, so an episode can be taken up again at any of its steps. Either one reply is
exchanged for others of its role to the same prompt, or a role is silent from its first turn on.
Replies of the same step stay: who acts at the same time cannot have reacted. Every later turn, of
all roles, is sampled again by the current policies, because what they said in the episode answered
a reply that is no longer there. The episode itself is then one sample of "this reply, and what
follows it", and each replay is another.

If `max_extra_tokens` does not suffice for all turns, chance picks those that are replayed, before
anything is replayed: early turns and late turns lose alike.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pettingllms.rollouts.context import Position, Table
from pettingllms.rollouts.env_calls import CallFailed
from pettingllms.rollouts.linear import play_linear
from pettingllms.rollouts.tree import (
    Fork,
    make_fork,
    no_tokens_left,
    num_affordable,
    play_forks_on,
    settle,
    void_if_cut,
)
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode


async def play_replay(table: Table, episode: Episode, path: int | str) -> None:
    """Play the episode as linear rollouts do, then replay it."""
    visited: list[Position] = []
    await play_linear(table, episode, path, visited)
    if episode.failure is not None:
        return
    places = list(_trained_places(table, episode, visited))
    silent = table.config.replay == "silent"
    if silent:
        places = list({place.role: place for place in reversed(places)}.values())[::-1]
    random.Random(derive_seed("replays", episode.seed, path)).shuffle(places)
    number = 1 if silent else table.config.num_replays
    for place in places[: num_affordable(table, episode, number)]:
        if silent:
            await _remove_role(table, episode, place)
        else:
            await _exchange(table, episode, place)


@dataclass(frozen=True, slots=True)
class Place:
    """A turn of the trunk, and where it was made."""

    at: Position
    num_steps: int
    """Steps before it."""
    joint_action: tuple[int, ...]
    """The turns that entered the same step, by index."""
    index: int
    role: str

    def joint_action_with(self, other: int) -> tuple[int, ...]:
        """The same step with another reply of this role."""
        return tuple(other if index == self.index else index for index in self.joint_action)


def _trained_places(table: Table, episode: Episode, visited: Sequence[Position]) -> Iterator[Place]:
    for step, at in enumerate(visited):
        joint_action = episode.steps[step].turns
        for index in joint_action:
            role = episode.turns[index].role
            if table.players[role].trained:
                yield Place(at, step, joint_action, index, role)


async def _exchange(table: Table, episode: Episode, place: Place) -> None:
    """Sample other replies for a turn of the trunk, and play on from each of them."""
    turn, number = episode.turns[place.index], table.config.num_replays
    at = Position(place.at.state, place.at.step, derive_seed(place.at.seed, "replay", place.role))
    each = (table.config.max_extra_tokens - episode.num_extra_tokens) // number
    others = await table.ask_again(at, episode.task, turn, number, each)
    episode.num_extra_tokens += table.num_sampled(others)
    turn.links.branch = 0
    forks: dict[int, Fork] = {}
    for branch, other in enumerate(others, start=1):
        other.links.branch = branch
        is_short = each < table.config.max_reply_tokens and other.num_tokens >= each
        if is_short and other.finish == "length":
            other.credit.failure = other.credit.failure or no_tokens_left(table)
        episode.turns.append(other)
        if other.credit.failure is None:
            index = len(episode.turns) - 1
            forks[index] = await make_fork(
                table, episode, at, place.joint_action_with(index), str(branch)
            )
    await play_forks_on(table, episode, list(forks.values()), place.num_steps + 1)
    for index, fork in forks.items():
        settle(episode.turns[index], fork)
    void_if_cut(others)


async def _remove_role(table: Table, episode: Episode, place: Place) -> None:
    """Play on from the first turn of a role, in which and after which it is silent."""
    at = place.at.after(place.at.state, place.at.step, "without", place.role)
    try:
        quiet = await table.silence(at, place.role)
    except CallFailed as failed:
        episode.without[place.role] = failed.failure
        return
    episode.turns.append(quiet)
    joint_action = place.joint_action_with(len(episode.turns) - 1)
    fork = await make_fork(table, episode, at, joint_action, "silent")
    quieted = replace(table, silent=place.role)
    await play_forks_on(quieted, episode, [fork], place.num_steps + 1)
    settle(quiet, fork)
    end = fork.failure or fork.last
    assert end is not None  # noqa: S101 - a fork failed or has a last step
    episode.without[place.role] = end
