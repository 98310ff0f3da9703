"""Tree rollouts, for AT-GRPO: K replies at every decision, each stepped in a fork of its own.

A sibling is compared only with the replies that its role gave in the same state, so everything but
the reply must be the same. Where several roles act at the same time, a sibling is therefore stepped
together with one fixed reply of each other role (its first), and not with a different one each
time. Where a sibling's own step does not tell what it was worth, every fork is played to its end by
the current policies, and the returns are compared. One reply of each role goes on; all are kept.

With `select = "sampled"` the trunk does not depend on those continuations, so it is played first.
Then decisions are played on in an order drawn by chance: if `max_extra_tokens` does not suffice,
early and late decisions lose alike. With `select = "best"` each decision depends on the one before
it, and an episode whose continuations exceed the limit is excluded as a whole.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from pettingllms.algos.credit import mean, sibling_rewards
from pettingllms.rollouts.context import Position, Table
from pettingllms.rollouts.env_calls import CallFailed
from pettingllms.rollouts.linear import judge_turns, play_on
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Failed, Scored, Turn

JointAction = tuple[int, ...]
"""Indices of the turns that enter one step, in the order of the acting roles."""


@dataclass(slots=True)
class Fork:
    """One step from the decision's state, and where it led."""

    at: Position | None = None
    """None if the step failed."""
    last: int | None = None
    over: bool = False
    """Whether no role acts any more."""
    failure: Failed | None = None
    end: Position | None = None
    """Where the fork ended, if it was played to its end."""


@dataclass(slots=True)
class Decision:
    """The siblings that the acting roles gave in one state, and the forks that they led to."""

    num_steps: int
    """Steps before it."""
    siblings: list[range]
    """For each acting role the indices of its replies."""
    joint_actions: dict[int, JointAction]
    """For each reply the replies that it was stepped with."""
    forks: dict[JointAction, Fork]
    compared: bool
    """Whether a role that learns gave more than one reply."""

    def settle(self, episode: Episode) -> None:
        """Write on every reply how its fork went."""
        for index, joint_action in self.joint_actions.items():
            settle(episode.turns[index], self.forks[joint_action])
        for indices in self.siblings:
            void_if_cut([episode.turns[index] for index in indices])


async def play_tree(table: Table, episode: Episode, path: int | str) -> None:
    """Grow the tree of the episode's task along its trunk, to the end."""
    decisions: list[Decision] = []
    try:
        await _grow(table, episode, path, decisions)
    except CallFailed as failed:
        episode.failure = failed.failure
        for turn in episode.turns:
            if turn.links.step is None or _out_of_tokens(failed.failure):
                turn.credit.failure = turn.credit.failure or failed.failure
    if table.config.select == "sampled":
        await _play_decisions_on(table, episode, decisions, path)


async def _grow(table: Table, episode: Episode, path: int | str, decisions: list[Decision]) -> None:
    at = await table.start(episode.task, episode.seed, path)
    num_steps = num_tokens = 0
    while roles := await table.acting(at):
        siblings = await _sample_siblings(table, episode, at, roles, num_steps, num_tokens)
        if isinstance(siblings, str):
            at = table.cut(at, episode, siblings)
            break
        decision = await _decide(table, episode, at, siblings, num_steps)
        decisions.append(decision)
        if table.config.select == "best" and decision.compared:
            await _play_now(table, episode, decision)
        decision.settle(episode)
        at, chosen = await _go_on(table, episode, at, decision)
        episode.last = at.step
        num_steps += 1
        num_tokens += table.num_sampled(episode.turns[index] for index in chosen)
    if episode.failure is None:
        episode.success = await table.success(at)


async def _decide(
    table: Table, episode: Episode, at: Position, siblings: list[range], num_steps: int
) -> Decision:
    """Step each sibling in its fork."""
    reference = tuple(_first_good(episode, indices) for indices in siblings)
    joint_actions = {
        index: (*reference[:player], index, *reference[player + 1 :])
        for player, indices in enumerate(siblings)
        for index in indices
        if episode.turns[index].credit.failure is None
    }
    forks = {
        joint_action: await make_fork(
            table, episode, at, joint_action, *_branches(episode, joint_action)
        )
        for joint_action in dict.fromkeys(joint_actions.values())
    }
    compared = any(episode.turns[index].links.branch is not None for index in joint_actions)
    return Decision(num_steps, siblings, joint_actions, forks, compared)


async def _play_now(table: Table, episode: Episode, decision: Decision) -> None:
    """Play a decision's forks on before the best of its siblings is chosen."""
    forks = list(decision.forks.values())
    is_first = episode.best_of == 1
    episode.best_of = table.config.num_samples
    if _needs_ends(table, decision):
        await play_forks_on(table, episode, forks, decision.num_steps + 1)
    if any(_out_of_tokens(fork.failure) for fork in forks):
        raise CallFailed(no_tokens_left(table))
    if is_first and _always_plays_on(table):
        # Only ordinary samples have led here, and each fork is one more.
        found = [await table.success(f.end) if f.end else {} for f in forks]
        episode.first_success = {
            role: mean([float(one.get(role, False)) for one in found]) for role in table.env.roles
        }


async def _play_decisions_on(
    table: Table, episode: Episode, decisions: Sequence[Decision], path: int | str
) -> None:
    """Play the forks of a finished trunk's decisions on, of as many as there are tokens for."""
    open_decisions = [decision for decision in decisions if _needs_ends(table, decision)]
    most = max((len(decision.forks) for decision in open_decisions), default=0)
    random.Random(derive_seed("continuations", episode.seed, path)).shuffle(open_decisions)
    affordable = num_affordable(table, episode, most)
    for at, decision in enumerate(open_decisions):
        forks = list(decision.forks.values())
        if at < affordable:
            await play_forks_on(table, episode, forks, decision.num_steps + 1)
        else:
            for fork in forks:
                fork.failure = fork.failure or no_tokens_left(table)
        decision.settle(episode)


def _always_plays_on(table: Table) -> bool:
    how = table.config.continuation
    return how == "episode" or (how == "auto" and table.env.late_rewards)


def _needs_ends(table: Table, decision: Decision) -> bool:
    """Whether siblings can only be compared by how their episodes end."""
    if not decision.compared or table.config.continuation == "none":
        return False
    over = {fork.over for fork in decision.forks.values() if fork.failure is None}
    return _always_plays_on(table) or len(over) > 1


async def _go_on(
    table: Table, episode: Episode, at: Position, decision: Decision
) -> tuple[Position, JointAction]:
    """Choose one reply of each role; the position that they lead to."""
    rng = random.Random(derive_seed(at.seed, "select"))
    chosen = tuple(_select(table, episode, indices, rng) for indices in decision.siblings)
    fork = decision.forks.get(chosen)
    if fork is None:
        fork = await make_fork(table, episode, at, chosen, *_branches(episode, chosen))
    if fork.at is None:
        raise CallFailed(fork.failure or Failed("no fork can go on", "environment"))
    return fork.at, chosen


async def _sample_siblings(
    table: Table,
    episode: Episode,
    at: Position,
    roles: Sequence[str],
    num_steps: int,
    num_tokens: int,
) -> list[range] | str:
    """Ask every acting role; a player that learns gives siblings, any other one reply. Or the limit
    for which the episode cannot go on."""
    if reason := table.over_limit(num_steps, num_tokens):
        return reason
    numbers = {
        role: table.config.num_samples if table.players[role].trained else 1 for role in roles
    }
    ranges = []
    limit = table.config.max_reply_tokens
    for turns in await table.ask_all(at, episode.task, numbers, limit):
        start = len(episode.turns)
        episode.turns += turns
        ranges.append(range(start, len(episode.turns)))
        if len(turns) > 1:
            for branch, turn in enumerate(turns):
                turn.links.branch = branch
    asked = [episode.turns[index] for indices in ranges for index in indices]
    return table.too_long(asked, num_steps) or ranges


def _branches(episode: Episode, joint_action: JointAction) -> list[str]:
    return [str(episode.turns[index].links.branch) for index in joint_action]


def _first_good(episode: Episode, indices: range) -> int:
    good = [index for index in indices if episode.turns[index].credit.failure is None]
    if good:  # one that no limit cut, if there is one
        return min(good, key=lambda index: bool(episode.turns[index].limit))
    failure = episode.turns[indices[0]].credit.failure
    assert failure is not None  # noqa: S101 - the loop found no turn without one
    raise CallFailed(failure)


async def make_fork(
    table: Table, episode: Episode, at: Position, joint_action: JointAction, *choice: str
) -> Fork:
    """Step a position with these replies."""
    try:
        state, step = await table.step(at, episode, joint_action)
        after = at.after(state, step, *choice)
        over = not await table.acting(after)
    except CallFailed as failed:
        return Fork(failure=failed.failure)
    episode.steps[step].final = over
    return Fork(after, step, over, end=after if over else None)


def settle(turn: Turn, fork: Fork) -> None:
    """Write on a reply how its fork went."""
    turn.credit.failure = turn.credit.failure or fork.failure
    turn.links.step = None if fork.at is None else fork.at.step
    turn.links.last = fork.last


def num_affordable(table: Table, episode: Episode, number: int) -> int:
    """For how many decisions the extra tokens suffice, if each plays the trunk so many times.

    A late decision costs less than that. Counting all alike, before any of them is played, makes
    the chance to be left out the same for each, whatever its place and its outcome.
    """
    each = number * table.num_sampled(episode.main_turns())
    return table.config.max_extra_tokens // max(1, each)


def no_tokens_left(table: Table) -> Failed:
    """The failure of what was not played to its end for want of tokens."""
    cap = table.config.max_extra_tokens
    return Failed(f"no tokens left of {cap} extra ones (rollout.max_extra_tokens)", "limit")


def _out_of_tokens(failure: Failed | None) -> bool:
    return failure is not None and "rollout.max_extra_tokens" in failure.reason


async def play_forks_on(
    table: Table, episode: Episode, forks: Sequence[Fork], num_steps: int
) -> None:
    """Play every fork to its end at the same time, each with its share of the tokens left."""
    open_forks = [fork for fork in forks if not fork.over and fork.failure is None]
    left = table.config.max_extra_tokens - episode.num_extra_tokens
    share = left // max(1, len(open_forks))
    if share < 1:
        for fork in open_forks:
            fork.failure = no_tokens_left(table)
        return
    plays = await asyncio.gather(
        *(_play_fork_on(table, episode, fork, share, num_steps) for fork in open_forks)
    )
    for fork, play in zip(open_forks, plays, strict=True):
        fork.last = graft(table, episode, play, fork.last, table.config.keep_continuations)
        fork.failure = play.failure


async def _play_fork_on(
    table: Table, episode: Episode, fork: Fork, max_tokens: int, num_steps: int
) -> Episode:
    """A continuation as a small episode of its own, so that forks cannot mix."""
    assert fork.at is not None  # noqa: S101 - only forks that have a state are played on
    play = Episode(episode.id, episode.env, episode.task, episode.seed)
    start = Position(fork.at.state, None, derive_seed(fork.at.seed, "continuation"))
    try:
        end = await play_on(table, play, start, max_tokens, "max_extra_tokens", num_steps)
        fork.end = end if play.failure is None else None
    except CallFailed as failed:
        play.failure = failed.failure
    judge_turns(play)
    return play


def graft(
    table: Table, episode: Episode, play: Episode, root: int | None, keep: bool = True
) -> int | None:
    """Put a small play into the episode, behind the step it was played from; give where it ends.

    Its rewards are what a fork is judged by. What was said in it is kept only for a look: that is
    most of the memory of a tree.
    """
    first_turn, first_step = len(episode.turns), len(episode.steps)
    episode.num_extra_tokens += table.num_sampled(play.turns)

    def moved(step: int | None) -> int | None:
        return root if step is None else step + first_step

    for turn in play.turns:
        turn.links.step = None if turn.links.step is None else turn.links.step + first_step
        turn.links.last = moved(turn.links.last)
    for step in play.steps:
        step.parent = moved(step.parent)
        step.turns = tuple(first_turn + turn for turn in step.turns) if keep else ()
    if keep:
        episode.turns += play.turns
    else:
        dropped = episode.dropped_tokens
        for turn in play.turns:
            dropped[turn.policy] = dropped.get(turn.policy, 0) + turn.num_tokens
    episode.steps += play.steps
    return moved(play.last)


def void_if_cut(siblings: list[Turn]) -> None:
    """Compare none if one was cut by a limit: those that were not are the plays that ended soon."""
    cut = next(
        (
            t.credit.failure
            for t in siblings
            if t.credit.failure and t.credit.failure.owner == "limit"
        ),
        None,
    )
    for turn in siblings:
        turn.credit.failure = turn.credit.failure or cut


def _select(table: Table, episode: Episode, indices: range, rng: random.Random) -> int:
    """The sibling that goes on: any that reached a state, or the one that was worth most."""
    reached = [index for index in indices if episode.turns[index].links.step is not None]
    if not reached:
        failure = episode.turns[indices[0]].credit.failure
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
