"""Scripted players of werewolf: random, and sound, which shares and trusts information."""

import random
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.games.werewolf.prompts import PASS, called
from pettingllms.envs.games.werewolf.rules import Village
from pettingllms.envs.toolkit.noisy import noisy

CLAIM = re.compile(r"player_([1-8]) is a wolf")


def play_random(env: Any, state: Village, role: str, rng: random.Random) -> str:
    """A random legal choice, and sometimes a random accusation."""
    name = rng.choice(state.choices(env.roles.index(role)))
    if state.phase == "talk":
        claim = f"I think {called(name)} is a wolf."
        return str(env.reply_of(rng.choice((PASS, "I know nothing.", claim))))
    return str(env.reply_of(called(name)))


def play_sound(env: Any, state: Village, role: str, rng: random.Random) -> str:
    """The seer reveals wolves, villagers vote for the most accused, wolves stay quiet."""
    position = env.roles.index(role)
    names = state.choices(position)
    if state.phase == "talk":
        found = [name for name in _found(state, position, "a wolf") if name in names]
        return str(env.reply_of(f"I looked: {called(found[0])} is a wolf." if found else PASS))
    if state.phase == "night":
        return str(env.reply_of(called(_at_night(state, position, names, rng))))
    return str(env.reply_of(called(_vote(state, position, names, rng))))


def _at_night(state: Village, position: int, names: list[int], rng: random.Random) -> int:
    """A wolf kills the latest accuser of a wolf; the seer inspects an unknown player."""
    if state.part(position) == "seer":
        seen = {*_found(state, position, "a wolf"), *_found(state, position, "no wolf")}
        return rng.choice([name for name in names if name not in seen] or names)
    pack = {state.names[wolf] for wolf in range(state.num_wolves)}
    accusers = [who for who, accused in _claims(state) if accused in pack and who in names]
    return accusers[-1] if accusers else min(names)


def _vote(state: Village, position: int, names: list[int], rng: random.Random) -> int:
    found = [name for name in _found(state, position, "a wolf") if name in names]
    if found:
        return found[0]
    if state.part(position) == "wolf":
        pack = {state.names[wolf] for wolf in range(state.num_wolves)}
        return rng.choice([name for name in names if name not in pack])
    accused = Counter(name for _, name in _claims(state) if name in names)
    return accused.most_common(1)[0][0] if accused else rng.choice(names)


def _found(state: Village, position: int, part: str) -> list[int]:
    """Names that a seer has inspected with this result."""
    return [
        event.who
        for event in state.events
        if event.kind == "found" and event.words == part and position in (event.known_to or ())
    ]


def _claims(state: Village) -> list[tuple[int, int]]:
    """All accusations, as pairs of accuser and accused."""
    return [
        (event.who, int(name))
        for event in state.events
        if event.kind == "said"
        for name in CLAIM.findall(event.words)
    ]


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_sound, play_random),
    "sound": play_sound,
}
