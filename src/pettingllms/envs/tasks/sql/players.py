"""Scripted players: one that explores and writes correctly, one that guesses, one that is wrong."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.tasks.sql.database import expected_result
from pettingllms.envs.toolkit.noisy import noisy
from pettingllms.envs.toolkit.tool_calls import ToolCall
from pettingllms.envs.toolkit.tool_texts import call_of

WORDS = ("customers", "books", "flights", "students", "orders")


def play_analyst(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Describes the needed tables, then writes the reference query."""
    if role != "writer":
        needed = expected_result(state.question.database, state.question.sql).tables
        missing = sorted(needed - state.seen)
        if missing and state.num_calls < env.config.max_calls:
            return call_of(env.config, ToolCall("describe_table", (("table", missing[0]),)))
    if role == "explorer":
        return str(env.reply_of("These are the tables that it needs."))
    return str(env.reply_of(state.question.sql))


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random call, or a query on a random table."""
    word = rng.choice(WORDS)
    if role != "writer" and state.num_calls < env.config.max_calls and rng.random() < 0.8:
        calls = (
            ToolCall("list_tables"),
            ToolCall("run_query", (("sql", f"SELECT COUNT(*) FROM {word}"),)),  # noqa: S608 - a word above
        )
        return call_of(env.config, rng.choice(calls))
    if role == "explorer":
        return str(env.reply_of(f"Look at {word}."))
    return str(env.reply_of(f"SELECT name FROM {word}"))  # noqa: S608 - a word above


def play_without_looking(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Inspects nothing and gives the same answer to every question."""
    return str(env.reply_of("No note." if role == "explorer" else "SELECT 'nobody knows'"))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_analyst, play_random),
    "analyst": play_analyst,
    "blind": play_without_looking,
}
