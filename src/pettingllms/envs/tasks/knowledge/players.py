"""Scripted players: one that looks everything up, one that invents everything, and a random one."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.noisy import noisy
from pettingllms.envs.toolkit.tool_texts import search_for


def play_librarian(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A search per subject; one line per fact, with its article."""
    facts = state.topic.facts
    if role == "writer":
        return str(env.reply_of("\n".join(f"{fact.sentence} [{fact.subject}]" for fact in facts)))
    found = dict(state.articles)
    missing = [fact.subject for fact in facts if fact.subject not in found]
    if missing and state.num_calls < env.config.max_calls:
        return search_for(env.config, missing[0])
    return str(env.reply_of("All of it is there."))


def play_inventor(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Searches nothing and cites an article that was never found."""
    if role == "writer":
        return str(env.reply_of("Everybody knows this. [The Great Book]"))
    return str(env.reply_of("No need to search."))


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A few words of the topic as a search; a random article that cites itself."""
    if role == "writer":
        titles = [title for title, _ in state.articles] or ["Nothing"]
        title = rng.choice(titles)
        return str(env.reply_of(f"{title} is known. [{title}]"))
    words = state.topic.text.strip(".").split()
    if state.num_calls < env.config.max_calls and rng.random() < 0.8:
        return search_for(env.config, " ".join(rng.sample(words, min(3, len(words)))))
    return str(env.reply_of("That is all."))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_librarian, play_random),
    "librarian": play_librarian,
    "inventor": play_inventor,
}
