"""Tree rollouts, for AT-GRPO: K sibling replies per decision, each stepped in a separate fork.

A sibling is compared only with replies of its role to the same state, so all else must be equal.
Where several roles act simultaneously, a sibling is therefore stepped with one fixed reply of each
other role (its first). If the reward of a sibling's step does not determine its return, the current
policies continue every fork to the end of the episode, and returns are compared. One reply of each
role continues the main branch; all siblings are kept.

With `select = "sampled"` the main branch does not depend on continuations, so it is sampled first.
Then decisions are continued in random order, so that early and late decisions are equally likely to
exceed `max_extra_tokens`. With `select = "best"` each decision depends on the previous one, and an
episode whose continuations exceed the limit is excluded.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from pettingllms.algos.credit import mean, sibling_rewards
from pettingllms.rollouts.context import Position, RolloutContext
from pettingllms.rollouts.env_calls import CallFailed
from pettingllms.rollouts.linear import continue_episode, link_outcomes
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Failed, Scored, Turn

JointAction = tuple[int, ...]
"""Indices of the turns that enter one step, in the order of the acting roles."""


@dataclass(slots=True)
class Fork:
    """One step from the state of a decision, and its outcome."""

    at: Position | None = None
    """None if the step failed."""
    last: int | None = None
    over: bool = False
    """Whether the step ended the episode."""
    failure: Failed | None = None
    end: Position | None = None
    """Last position of the fork, if it was continued to the end of the episode."""


@dataclass(slots=True)
class Decision:
    """The sibling replies of the acting roles in one state, and their forks."""

    num_steps: int
    """Number of earlier steps."""
    siblings: list[range]
    """Indices of the replies of each acting role."""
    joint_actions: dict[int, JointAction]
    """The joint action in which each reply was stepped."""
    forks: dict[JointAction, Fork]
    compared: bool
    """Whether a trained role sampled more than one reply."""

    def write_outcomes(self, episode: Episode) -> None:
        """Write the outcome of each fork to its reply."""
        for index, joint_action in self.joint_actions.items():
            write_outcome(episode.turns[index], self.forks[joint_action])
        for indices in self.siblings:
            exclude_if_cut([episode.turns[index] for index in indices])


async def tree_rollout(context: RolloutContext, episode: Episode, path: int | str) -> None:
    """Grow the tree of an episode along its main branch, to the end."""
    decisions: list[Decision] = []
    try:
        await _grow(context, episode, path, decisions)
    except CallFailed as failed:
        episode.failure = failed.failure
        for turn in episode.turns:
            if turn.links.step is None or _out_of_tokens(failed.failure):
                turn.credit.failure = turn.credit.failure or failed.failure
    if context.config.select == "sampled":
        await _continue_decisions(context, episode, decisions, path)


async def _grow(
    context: RolloutContext, episode: Episode, path: int | str, decisions: list[Decision]
) -> None:
    at = await context.start(episode.task, episode.seed, path)
    num_steps = num_tokens = 0
    while roles := await context.acting(at):
        siblings = await _sample_siblings(context, episode, at, roles, num_steps, num_tokens)
        if isinstance(siblings, str):
            at = context.cut(at, episode, siblings)
            break
        decision = await _decide(context, episode, at, siblings, num_steps)
        decisions.append(decision)
        if context.config.select == "best" and decision.compared:
            await _continue_before_selecting(context, episode, decision)
        decision.write_outcomes(episode)
        at, chosen = await _continue_main_branch(context, episode, at, decision)
        episode.last = at.step
        num_steps += 1
        num_tokens += context.num_sampled(episode.turns[index] for index in chosen)
    if episode.failure is None:
        episode.success = await context.success(at)


async def _decide(
    context: RolloutContext, episode: Episode, at: Position, siblings: list[range], num_steps: int
) -> Decision:
    """Step each sibling in a separate fork."""
    reference = tuple(_first_valid(episode, indices) for indices in siblings)
    joint_actions = {
        index: (*reference[:player], index, *reference[player + 1 :])
        for player, indices in enumerate(siblings)
        for index in indices
        if episode.turns[index].credit.failure is None
    }
    forks = {
        joint_action: await make_fork(
            context, episode, at, joint_action, *_branches(episode, joint_action)
        )
        for joint_action in dict.fromkeys(joint_actions.values())
    }
    compared = any(episode.turns[index].links.branch is not None for index in joint_actions)
    return Decision(num_steps, siblings, joint_actions, forks, compared)


async def _continue_before_selecting(
    context: RolloutContext, episode: Episode, decision: Decision
) -> None:
    """Continue the forks of a decision before the best sibling is selected."""
    forks = list(decision.forks.values())
    is_first = episode.best_of == 1
    episode.best_of = context.config.num_samples
    if _needs_continuations(context, decision):
        await continue_forks(context, episode, forks, decision.num_steps + 1)
    if any(_out_of_tokens(fork.failure) for fork in forks):
        raise CallFailed(no_tokens_left(context))
    if is_first and _always_continues(context):
        # Up to here all replies are ordinary samples, and each fork adds one more.
        found = [await context.success(f.end) if f.end else {} for f in forks]
        episode.first_success = {
            role: mean([float(one.get(role, False)) for one in found]) for role in context.env.roles
        }


async def _continue_decisions(
    context: RolloutContext, episode: Episode, decisions: Sequence[Decision], path: int | str
) -> None:
    """Continue the forks of as many decisions of the main branch as the extra tokens allow."""
    open_decisions = [decision for decision in decisions if _needs_continuations(context, decision)]
    most = max((len(decision.forks) for decision in open_decisions), default=0)
    random.Random(derive_seed("continuations", episode.seed, path)).shuffle(open_decisions)
    affordable = num_affordable(context, episode, most)
    for at, decision in enumerate(open_decisions):
        forks = list(decision.forks.values())
        if at < affordable:
            await continue_forks(context, episode, forks, decision.num_steps + 1)
        else:
            for fork in forks:
                fork.failure = fork.failure or no_tokens_left(context)
        decision.write_outcomes(episode)


def _always_continues(context: RolloutContext) -> bool:
    how = context.config.continuation
    return how == "episode" or (how == "auto" and context.env.late_rewards)


def _needs_continuations(context: RolloutContext, decision: Decision) -> bool:
    """Whether siblings can only be compared by their returns."""
    if not decision.compared or context.config.continuation == "none":
        return False
    over = {fork.over for fork in decision.forks.values() if fork.failure is None}
    return _always_continues(context) or len(over) > 1


async def _continue_main_branch(
    context: RolloutContext, episode: Episode, at: Position, decision: Decision
) -> tuple[Position, JointAction]:
    """Select one reply of each role; the position that they lead to, and the joint action."""
    rng = random.Random(derive_seed(at.seed, "select"))
    chosen = tuple(_select(context, episode, indices, rng) for indices in decision.siblings)
    fork = decision.forks.get(chosen)
    if fork is None:
        fork = await make_fork(context, episode, at, chosen, *_branches(episode, chosen))
    if fork.at is None:
        raise CallFailed(fork.failure or Failed("no fork can be continued", "environment"))
    return fork.at, chosen


async def _sample_siblings(
    context: RolloutContext,
    episode: Episode,
    at: Position,
    roles: Sequence[str],
    num_steps: int,
    num_tokens: int,
) -> list[range] | str:
    """Sample siblings from trained players and one reply from others; or the limit that ends the
    episode."""
    if reason := context.over_limit(num_steps, num_tokens):
        return reason
    numbers = {
        role: context.config.num_samples if context.players[role].trained else 1 for role in roles
    }
    ranges = []
    limit = context.config.max_reply_tokens
    for turns in await context.sample_turns(at, episode.task, numbers, limit):
        start = len(episode.turns)
        episode.turns += turns
        ranges.append(range(start, len(episode.turns)))
        if len(turns) > 1:
            for branch, turn in enumerate(turns):
                turn.links.branch = branch
    sampled = [episode.turns[index] for indices in ranges for index in indices]
    return context.too_long(sampled, num_steps) or ranges


def _branches(episode: Episode, joint_action: JointAction) -> list[str]:
    return [str(episode.turns[index].links.branch) for index in joint_action]


def _first_valid(episode: Episode, indices: range) -> int:
    good = [index for index in indices if episode.turns[index].credit.failure is None]
    if good:  # preferably one that no limit cut
        return min(good, key=lambda index: bool(episode.turns[index].limit))
    failure = episode.turns[indices[0]].credit.failure
    assert failure is not None  # noqa: S101 - all turns failed
    raise CallFailed(failure)


async def make_fork(
    context: RolloutContext, episode: Episode, at: Position, joint_action: JointAction, *choice: str
) -> Fork:
    """Step the environment from a position with a joint action."""
    try:
        state, step = await context.step(at, episode, joint_action)
        after = at.after(state, step, *choice)
        over = not await context.acting(after)
    except CallFailed as failed:
        return Fork(failure=failed.failure)
    episode.steps[step].final = over
    return Fork(after, step, over, end=after if over else None)


def write_outcome(turn: Turn, fork: Fork) -> None:
    """Write the outcome of a fork to its reply."""
    turn.credit.failure = turn.credit.failure or fork.failure
    turn.links.step = None if fork.at is None else fork.at.step
    turn.links.last = fork.last


def num_affordable(context: RolloutContext, episode: Episode, number: int) -> int:
    """How many decisions the extra tokens cover, if each re-samples the main branch `number` times.

    Late decisions cost less. Counting all alike, before any is continued, gives each decision the
    same chance of being left out, whatever its depth and outcome.
    """
    each = number * context.num_sampled(episode.main_turns())
    return context.config.max_extra_tokens // max(1, each)


def no_tokens_left(context: RolloutContext) -> Failed:
    """The failure of forks that were not continued because the extra tokens are used up."""
    cap = context.config.max_extra_tokens
    return Failed(f"all {cap} extra tokens are used (rollout.max_extra_tokens)", "limit")


def _out_of_tokens(failure: Failed | None) -> bool:
    return failure is not None and "rollout.max_extra_tokens" in failure.reason


async def continue_forks(
    context: RolloutContext, episode: Episode, forks: Sequence[Fork], num_steps: int
) -> None:
    """Continue all forks to the end concurrently, each with its share of the remaining tokens."""
    open_forks = [fork for fork in forks if not fork.over and fork.failure is None]
    left = context.config.max_extra_tokens - episode.num_extra_tokens
    share = left // max(1, len(open_forks))
    if share < 1:
        for fork in open_forks:
            fork.failure = no_tokens_left(context)
        return
    continuations = await asyncio.gather(
        *(_continue_fork(context, episode, fork, share, num_steps) for fork in open_forks)
    )
    for fork, continuation in zip(open_forks, continuations, strict=True):
        fork.last = graft(
            context, episode, continuation, fork.last, context.config.keep_continuations
        )
        fork.failure = continuation.failure


async def _continue_fork(
    context: RolloutContext, episode: Episode, fork: Fork, max_tokens: int, num_steps: int
) -> Episode:
    """Sample a continuation as a separate episode, so that forks cannot interfere."""
    assert fork.at is not None  # noqa: S101 - only forks with a state are continued
    continuation = Episode(episode.id, episode.env, episode.task, episode.seed)
    start = Position(fork.at.state, None, derive_seed(fork.at.seed, "continuation"))
    try:
        end = await continue_episode(
            context, continuation, start, max_tokens, "max_extra_tokens", num_steps
        )
        fork.end = end if continuation.failure is None else None
    except CallFailed as failed:
        continuation.failure = failed.failure
    link_outcomes(continuation)
    return continuation


def graft(
    context: RolloutContext,
    episode: Episode,
    continuation: Episode,
    root: int | None,
    keep: bool = True,
) -> int | None:
    """Attach a continuation to the episode after the step `root`; the index of its last step.

    Its rewards count toward the return of a fork. Its turns are kept only for inspection, because
    they make up most of the memory of a tree.
    """
    first_turn, first_step = len(episode.turns), len(episode.steps)
    episode.num_extra_tokens += context.num_sampled(continuation.turns)

    def moved(step: int | None) -> int | None:
        return root if step is None else step + first_step

    for turn in continuation.turns:
        turn.links.step = None if turn.links.step is None else turn.links.step + first_step
        turn.links.last = moved(turn.links.last)
    for step in continuation.steps:
        step.parent = moved(step.parent)
        step.turns = tuple(first_turn + turn for turn in step.turns) if keep else ()
    if keep:
        episode.turns += continuation.turns
    else:
        dropped = episode.dropped_tokens
        for turn in continuation.turns:
            dropped[turn.policy] = dropped.get(turn.policy, 0) + turn.num_tokens
    episode.steps += continuation.steps
    return moved(continuation.last)


def exclude_if_cut(siblings: list[Turn]) -> None:
    """Exclude all siblings if a limit cut one: the others are biased toward short episodes."""
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


def _select(context: RolloutContext, episode: Episode, indices: range, rng: random.Random) -> int:
    """Select the sibling that continues: a random one, or the one with the highest return."""
    reached = [index for index in indices if episode.turns[index].links.step is not None]
    if not reached:
        failure = episode.turns[indices[0]].credit.failure
        raise CallFailed(failure or Failed("no sibling reached a state", "environment"))
    if context.config.select == "sampled":
        return rng.choice(reached)
    rewards = sibling_rewards(episode, [episode.turns[i] for i in reached], context.reward)
    values = {
        index: reward.value
        for index, reward in zip(reached, rewards, strict=True)
        if isinstance(reward, Scored)
    }
    best = [index for index, value in values.items() if value == max(values.values())]
    return rng.choice(best or reached)
