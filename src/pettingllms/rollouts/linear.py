"""Linear rollouts: an episode is played from its start to its end, one reply a turn."""

from pettingllms.rollouts.context import Position, Table
from pettingllms.rollouts.env_calls import CallFailed
from pettingllms.types import Episode, Failed, Turn


async def play_linear(
    table: Table, episode: Episode, path: int | str, visited: list[Position] | None = None
) -> None:
    """Play the episode's task once, to its end; note in `visited` where each step was made."""
    try:
        start = await table.start(episode.task, episode.seed, path)
        limit = table.config.max_episode_tokens
        end = await play_on(table, episode, start, limit, visited=visited)
        if episode.failure is None:
            episode.success = await table.success(end)
            episode.answers = await table.answers(end)
    except CallFailed as failed:
        episode.failure = failed.failure
    judge_turns(episode)


async def play_on(
    table: Table,
    episode: Episode,
    start: Position,
    max_tokens: int,
    key: str = "max_episode_tokens",
    num_steps: int = 0,
    visited: list[Position] | None = None,
) -> Position:
    """Play from a position to the end, adding every turn and step to the episode.

    A play that reaches a limit ends there as `rollout.on_limit` says. If `key`, which limits its
    tokens, is `max_extra_tokens`, they are our own budget, and a play that lacks them fails.
    """
    at, num_tokens = start, 0
    is_extra = key == "max_extra_tokens"
    while roles := await table.acting(at):
        counted = 0 if is_extra else num_tokens
        if reason := table.over_limit(num_steps, counted):
            return table.cut(at, episode, reason)
        if num_tokens >= max_tokens:
            episode.failure = out_of_tokens(max_tokens)
            break
        left = (max_tokens - num_tokens) // len(roles) or 1
        replies = await table.ask_all(at, episode.task, dict.fromkeys(roles, 1), left)
        turns = range(len(episode.turns), len(episode.turns) + len(replies))
        episode.turns += [turn for (turn,) in replies]
        num_tokens += table.num_sampled(turn for (turn,) in replies)
        if reason := table.too_long((turn for (turn,) in replies), num_steps):
            return table.cut(at, episode, reason)
        episode.failure = next(
            (turn.credit.failure for (turn,) in replies if turn.credit.failure), None
        )
        is_short = left < table.config.max_reply_tokens and _any_cut(replies, left)
        if is_short and is_extra:
            episode.failure = episode.failure or out_of_tokens(max_tokens)
        if episode.failure is not None:
            break
        if visited is not None:
            visited.append(at)
        if is_short:
            reason = table.over_limit(0, table.config.max_episode_tokens)
            return table.cut(at, episode, reason, turns)
        state, step = await table.step(at, episode, turns)
        for (turn,) in replies:
            turn.links.step = step
        at = at.after(state, step, "next")
        episode.last = step
        num_steps += 1
    return at


def out_of_tokens(max_tokens: int) -> Failed:
    """The failure of a play for which our own budget of extra tokens did not suffice."""
    return Failed(f"cut after {max_tokens} tokens (rollout.max_extra_tokens)", "limit")


def _any_cut(replies: list[list[Turn]], num_tokens: int) -> bool:
    """Whether a reply was cut at its share of the tokens that were left."""
    return any(t.finish == "length" and t.num_tokens >= num_tokens for (t,) in replies)


def judge_turns(episode: Episode) -> None:
    """Let every turn answer for the rest of the play: if it failed, none of them was judged."""
    if episode.failure is None and episode.last is not None:
        episode.steps[episode.last].final = True
    for turn in episode.turns:
        turn.links.last = episode.last
        turn.credit.failure = turn.credit.failure or episode.failure
