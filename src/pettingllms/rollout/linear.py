"""Linear rollouts: an episode is played from its start to its end, one reply a turn."""

from pettingllms.rollout.guard import CallFailed
from pettingllms.rollout.table import Position, Table
from pettingllms.types import Episode, Turn


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

    The token limit holds exactly: a reply that reached it was cut by us, so nobody judges it.
    """
    at, num_tokens = start, 0
    while roles := await table.acting(at):
        episode.failure = table.over_limit(num_steps, num_tokens, max_tokens, key)
        if episode.failure is not None:
            break
        left = (max_tokens - num_tokens) // len(roles) or 1
        replies = await table.ask_all(at, episode.task, dict.fromkeys(roles, 1), left)
        turns = range(len(episode.turns), len(episode.turns) + len(replies))
        episode.turns += [turn for (turn,) in replies]
        num_tokens += table.num_sampled(turn for (turn,) in replies)
        episode.failure = next((turn.failure for (turn,) in replies if turn.failure), None)
        if left < table.config.max_reply_tokens and _any_cut(replies):
            episode.failure = table.over_limit(num_steps, max_tokens, max_tokens, key)
        if episode.failure is not None:
            break
        if visited is not None:
            visited.append(at)
        state, step = await table.step(at, episode, turns)
        for (turn,) in replies:
            turn.step = step
        at = at.after(state, step, "next")
        episode.last = step
        num_steps += 1
    return at


def _any_cut(replies: list[list[Turn]]) -> bool:
    return any(turn.finish == "length" for (turn,) in replies)


def judge_turns(episode: Episode) -> None:
    """Let every turn answer for the rest of the play: if it failed, none of them was judged."""
    for turn in episode.turns:
        turn.last = episode.last
        turn.failure = turn.failure or episode.failure
