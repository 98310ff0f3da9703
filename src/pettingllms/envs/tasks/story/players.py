"""Scripted writers: one that tells a story, one that pads, one that contradicts, a random one."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.tasks.story.premises import FAMILIES, HEROES, PLACES, THINGS
from pettingllms.envs.toolkit.noisy import noisy

DEEDS = (
    "The {hero} walked to the {place} one {hour}",
    "Old {thing} in hand, our {hero} looked for help",
    "Nobody at the {place} had seen such a {thing} before",
    "It was {season}, and {weather} hid every road",
    "A quiet voice asked what the {hero} wanted",
    "That night they opened it with the {thing}",
    "Inside lay something that belonged to a child",
    "So our friend gave it back and went home laughing",
)


def play_author(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The next sentence of a coherent story."""
    at = len(state.story_of(role)) % len(DEEDS)
    return _sentence(env, DEEDS[at], state)


def play_hollow(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The same filler in every line."""
    return str(env.reply_of("And then it went on and on and on"))


def play_contrary(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A sentence that contradicts the premise."""
    wrong = rng.choice(state.premise.contrary)
    return str(
        env.reply_of(f"The {state.premise.hero} waited for {wrong} by the {rng.choice(PLACES)}")
    )


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random sentence with a random hero, place and time."""
    words = {
        "hero": rng.choice(HEROES),
        "place": rng.choice(PLACES),
        "thing": rng.choice(THINGS),
        **{name: rng.choice(family) for name, family in FAMILIES.items()},
    }
    return str(env.reply_of(rng.choice(DEEDS).format(**words)))


def _sentence(env: Any, deed: str, state: Any) -> str:
    premise = state.premise
    words = {"hero": premise.hero, "place": premise.place, "thing": premise.thing}
    return str(
        env.reply_of(deed.format(**words, **dict(zip(FAMILIES, premise.setting, strict=True))))
    )


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_author, play_random),
    "author": play_author,
    "hollow": play_hollow,
    "contrary": play_contrary,
}
