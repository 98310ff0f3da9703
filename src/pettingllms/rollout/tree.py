"""Tree rollouts, for AT-GRPO: K replies at every decision, each stepped in a fork of its own.

A sibling is compared only with the replies that its role gave in the same state, so everything but
the reply must be the same. Where several roles act at the same time, a sibling is therefore stepped
together with one fixed reply of each other role (its first), and not with a different one each
time. Where an environment pays late, every fork is played on to its end by the current policies and
the return is what is compared. Then one reply of each role goes on; all are kept.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from pettingllms.algos.credit import sibling_rewards
from pettingllms.rollout.guard import CallFailed
from pettingllms.rollout.linear import judge_turns, play_on
from pettingllms.rollout.table import Position, Table
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Failed, Scored, Turn

Joint = tuple[int, ...]
"""Indices of the turns that enter one step, in the order of the acting roles."""


@dataclass(slots=True)
class Fork:
    """One step from the decision's state, and where it led."""

    at: Position | None = None
    last: int | None = None
    failure: Failed | None = None


async def play_tree(table: Table, episode: Episode, path: int | str) -> None:
    """Grow the tree of the episode's task along its trunk, to the end."""
    try:
        at = await table.start(episode.task, episode.seed, path)
        num_steps = num_tokens = 0
        while roles := await table.acting(at):
            if reason := table.over_limit(num_steps, num_tokens):
                at = table.cut(at, episode, reason)
                break
            at, chosen = await _decide(table, episode, at, roles, num_steps)
            episode.last = at.step
            num_steps += 1
            num_tokens += table.num_sampled(episode.turns[index] for index in chosen)
        if episode.failure is None:
            episode.success = await table.success(at)
    except CallFailed as failed:
        episode.failure = failed.failure
        for turn in episode.turns:
            if turn.step is None:
                turn.failure = turn.failure or failed.failure


async def _decide(
    table: Table, episode: Episode, at: Position, roles: Sequence[str], num_steps: int
) -> tuple[Position, Joint]:
    """Sample siblings, judge each in its fork, and give the position where the trunk goes on."""
    siblings = await _sample_siblings(table, episode, at, roles)
    asked = [episode.turns[index] for indices in siblings for index in indices]
    if reason := table.too_long(asked, num_steps):
        return table.cut(at, episode, reason), ()
    reference = tuple(_first_good(episode, indices) for indices in siblings)
    joints = {
        index: (*reference[:seat], index, *reference[seat + 1 :])
        for seat, indices in enumerate(siblings)
        for index in indices
        if episode.turns[index].failure is None
    }
    forks = {
        joint: await _fork(table, episode, at, joint) for joint in dict.fromkeys(joints.values())
    }
    compared = any(episode.turns[index].branch is not None for index in joints)
    if compared and table.config.continuation == "episode":
        await _play_forks_on(table, episode, list(forks.values()), num_steps + 1)
    for index, joint in joints.items():
        turn, fork = episode.turns[index], forks[joint]
        turn.failure = fork.failure
        turn.step = None if fork.at is None else fork.at.step
        turn.last = fork.last
    for indices in siblings:
        void_if_cut([episode.turns[index] for index in indices])
    rng = random.Random(derive_seed(at.seed, "select"))
    chosen = tuple(_select(table, episode, indices, rng) for indices in siblings)
    fork = forks.get(chosen) or await _fork(table, episode, at, chosen)
    if fork.at is None:
        raise CallFailed(fork.failure or Failed("no fork can go on", "environment"))
    return fork.at, chosen


async def _sample_siblings(
    table: Table, episode: Episode, at: Position, roles: Sequence[str]
) -> list[range]:
    """Ask every acting role; a seat that learns gives siblings, any other one reply."""
    numbers = {role: table.config.num_samples if table.seats[role].trained else 1 for role in roles}
    ranges = []
    limit = table.config.max_reply_tokens
    for turns in await table.ask_all(at, episode.task, numbers, limit):
        start = len(episode.turns)
        episode.turns += turns
        ranges.append(range(start, len(episode.turns)))
        if len(turns) > 1:
            for branch, turn in enumerate(turns):
                turn.branch = branch
    return ranges


def _first_good(episode: Episode, indices: range) -> int:
    good = [index for index in indices if episode.turns[index].failure is None]
    if good:  # one that no limit cut, if there is one
        return min(good, key=lambda index: bool(episode.turns[index].limit))
    failure = episode.turns[indices[0]].failure
    assert failure is not None  # noqa: S101 - the loop found no turn without one
    raise CallFailed(failure)


async def _fork(table: Table, episode: Episode, at: Position, joint: Joint) -> Fork:
    try:
        state, step = await table.step(at, episode, joint)
    except CallFailed as failed:
        return Fork(failure=failed.failure)
    branches = [str(episode.turns[index].branch) for index in joint]
    return Fork(at.after(state, step, *branches), step)


async def _play_forks_on(table: Table, episode: Episode, forks: list[Fork], num_steps: int) -> None:
    """Play every fork to its end at the same time, each with its share of the tokens left."""
    open_forks = [fork for fork in forks if fork.at is not None]
    used, cap = episode.num_extra_tokens, table.config.max_extra_tokens
    share = (cap - used) // max(1, len(open_forks))
    if share < 1:
        reason = f"cut after {used} of {cap} extra tokens (rollout.max_extra_tokens)"
        raise CallFailed(Failed(reason, "limit"))
    plays = await asyncio.gather(
        *(_play_fork_on(table, episode, fork.at, share, num_steps) for fork in open_forks)
    )
    for fork, play in zip(open_forks, plays, strict=True):
        fork.last = graft(table, episode, play, fork.last, table.config.keep_continuations)
        fork.failure = play.failure


async def _play_fork_on(
    table: Table, episode: Episode, at: Position | None, max_tokens: int, num_steps: int
) -> Episode:
    """A continuation as a small episode of its own, so that forks cannot mix."""
    assert at is not None  # noqa: S101 - only forks that have a state are played on
    play = Episode(episode.id, episode.env, episode.task, episode.seed)
    start = Position(at.state, None, derive_seed(at.seed, "continuation"))
    try:
        await play_on(table, play, start, max_tokens, "max_extra_tokens", num_steps)
    except CallFailed as failed:
        play.failure = failed.failure
    judge_turns(play)
    return play


def graft(
    table: Table,
    episode: Episode,
    play: Episode,
    root: int | None,
    keep: bool = True,
    num_shared: int = 0,
) -> int | None:
    """Put a small play into the episode, behind the step it was played from; give where it ends.

    Its rewards are what a fork is judged by. What was said in it is kept only for a look: that is
    most of the memory of a tree. Its first `num_shared` turns are those of the episode itself.
    """
    first_turn, first_step = len(episode.turns) - num_shared, len(episode.steps)
    added = play.turns[num_shared:]
    episode.num_extra_tokens += table.num_sampled(added)

    def moved(step: int | None) -> int | None:
        return root if step is None else step + first_step

    def placed(turn: int) -> int:
        return turn if turn < num_shared else turn + first_turn

    for turn in added:
        turn.step = None if turn.step is None else turn.step + first_step
        turn.last = moved(turn.last)
    for step in play.steps:
        step.parent = moved(step.parent)
        step.turns = tuple(map(placed, step.turns)) if keep else ()
    if keep:
        episode.turns += added
    else:
        dropped = episode.dropped_tokens
        for turn in added:
            dropped[turn.policy] = dropped.get(turn.policy, 0) + turn.num_tokens
    episode.steps += play.steps
    return moved(play.last)


def void_if_cut(siblings: list[Turn]) -> None:
    """Compare none if one was cut by a limit: those that were not are the plays that ended soon."""
    cut = next((t.failure for t in siblings if t.failure and t.failure.owner == "limit"), None)
    for turn in siblings:
        turn.failure = turn.failure or cut


def _select(table: Table, episode: Episode, indices: range, rng: random.Random) -> int:
    """The sibling that goes on: any that reached a state, or the one that was worth most."""
    reached = [index for index in indices if episode.turns[index].step is not None]
    if not reached:
        failure = episode.turns[indices[0]].failure
        raise CallFailed(failure or Failed("no sibling reached a state", "environment"))
    if table.config.select == "sampled":
        return rng.choice(reached)
    rewards = sibling_rewards(episode, [episode.turns[i] for i in reached], table.reward)
    worth = {
        index: reward.value
        for index, reward in zip(reached, rewards, strict=True)
        if isinstance(reward, Scored)
    }
    best = [index for index, value in worth.items() if value == max(worth.values())]
    return rng.choice(best or reached)
