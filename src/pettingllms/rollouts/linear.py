"""Linear rollouts: sample one episode from reset to end, one reply per turn."""

from pettingllms.rollouts.context import Position, RolloutContext
from pettingllms.rollouts.env_calls import CallFailed
from pettingllms.types import Episode, Failed, Turn


async def linear_rollout(
    context: RolloutContext,
    episode: Episode,
    path: int | str,
    visited: list[Position] | None = None,
) -> None:
    """Sample one episode of the task; append the position before each step to `visited`."""
    try:
        start = await context.start(episode.task, episode.seed, path)
        limit = context.config.max_episode_tokens
        end = await continue_episode(context, episode, start, limit, visited=visited)
        if episode.failure is None:
            episode.success = await context.success(end)
            episode.answers = await context.answers(end)
    except CallFailed as failed:
        episode.failure = failed.failure
    link_outcomes(episode)


async def continue_episode(
    context: RolloutContext,
    episode: Episode,
    start: Position,
    max_tokens: int,
    key: str = "max_episode_tokens",
    num_steps: int = 0,
    visited: list[Position] | None = None,
) -> Position:
    """Continue from a position to the end, adding every turn and step to the episode.

    At a limit, `rollout.on_limit` decides how the episode ends. If `key`, the limit of its tokens,
    is `max_extra_tokens`, an episode that exceeds that budget fails.
    """
    at, num_tokens = start, 0
    is_extra = key == "max_extra_tokens"
    while roles := await context.acting(at):
        counted = 0 if is_extra else num_tokens
        if reason := context.over_limit(num_steps, counted):
            return context.cut(at, episode, reason)
        if num_tokens >= max_tokens:
            episode.failure = out_of_tokens(max_tokens)
            break
        left = (max_tokens - num_tokens) // len(roles) or 1
        replies = await context.sample_turns(at, episode.task, dict.fromkeys(roles, 1), left)
        turns = range(len(episode.turns), len(episode.turns) + len(replies))
        episode.turns += [turn for (turn,) in replies]
        num_tokens += context.num_sampled(turn for (turn,) in replies)
        if reason := context.too_long((turn for (turn,) in replies), num_steps):
            return context.cut(at, episode, reason)
        episode.failure = next(
            (turn.credit.failure for (turn,) in replies if turn.credit.failure), None
        )
        is_short = left < context.config.max_reply_tokens and _any_cut(replies, left)
        if is_short and is_extra:
            episode.failure = episode.failure or out_of_tokens(max_tokens)
        if episode.failure is not None:
            break
        if visited is not None:
            visited.append(at)
        if is_short:
            reason = context.over_limit(0, context.config.max_episode_tokens)
            return context.cut(at, episode, reason, turns)
        state, step = await context.step(at, episode, turns)
        for (turn,) in replies:
            turn.links.step = step
        at = at.after(state, step, "next")
        episode.last = step
        num_steps += 1
    return at


def out_of_tokens(max_tokens: int) -> Failed:
    """The failure of an episode that exceeds the budget of extra tokens."""
    return Failed(f"cut after {max_tokens} tokens (rollout.max_extra_tokens)", "limit")


def _any_cut(replies: list[list[Turn]], num_tokens: int) -> bool:
    """Whether a reply was cut at its share of the remaining tokens."""
    return any(t.finish == "length" and t.num_tokens >= num_tokens for (t,) in replies)


def link_outcomes(episode: Episode) -> None:
    """Link every turn to the end of the episode, so that its return includes all later rewards.

    If the episode failed, all its turns failed."""
    if episode.failure is None and episode.last is not None:
        episode.steps[episode.last].final = True
    for turn in episode.turns:
        turn.links.last = episode.last
        turn.credit.failure = turn.credit.failure or episode.failure
