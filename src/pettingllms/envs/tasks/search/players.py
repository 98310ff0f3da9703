"""Scripted players: one that follows the hops, one that guesses, one that never searches."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.noisy import noisy
from pettingllms.envs.toolkit.tool_texts import search_for


def play_librarian(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The question of each hop as a part; a search per entity on the path; the correct answer."""
    if role == "decomposer":
        return str(env.reply_of("\n".join(ask for _, ask in state.question.hops)))
    missing = [thing for thing, _ in state.question.hops if thing not in state.seen]
    if missing and state.num_calls < env.config.max_calls:
        return search_for(env.config, missing[0])
    return str(env.reply_of(state.question.answers[0]))


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A few words of the question, as a part, a search or an answer."""
    words = state.question.text.strip("?").split()
    some = " ".join(rng.sample(words, min(3, len(words))))
    if role != "decomposer" and state.num_calls < env.config.max_calls and rng.random() < 0.7:
        return search_for(env.config, some)
    return str(env.reply_of(some))


def play_hasty(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Splits and searches nothing; gives the same answer to every question."""
    return str(env.reply_of("Answer it." if role == "decomposer" else "nobody knows"))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_librarian, play_random),
    "librarian": play_librarian,
    "hasty": play_hasty,
}
