"""How a random player finds a move in a game that takes any text.

TextArena's prompts show moves in brackets: `'[4]'`, `[A4 B5]`, `[row col]`, `[Bid: amount]`. The
player collects what the game itself wrote, newest first, and varies it: other numbers, other
letters, one of several words. It tries its ideas on a copy of the game and says the first that the
game accepts. When none is accepted it says the last one, and the game prices it.
"""

import copy
import random
import re
import string
from collections.abc import Iterator
from typing import Any

from pettingllms.envs.libraries.chance import seeded

NUM_TRIES = 400
BRACKETED = re.compile(r"\[[^\[\]\n]{1,60}\]")
QUOTED = re.compile(r"(?<!\w)['\"`]([^'\"`\n\[\]]{1,30})['\"`](?!\w)")
NUMBER = re.compile(r"\d+")
WORD = re.compile(r"[A-Za-z_]+")
SPEAKERS = re.compile(r"\[(GAME|Player|PLAYER)[^\]]*\]")
TALK = ("I agree.", "Let us go on.", "What do you think?", "No, thank you.")


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A move that the game accepts, found as the module's text says."""
    live = env.live(state)
    try:
        said = _ideas(state.view.texts[env.roles.index(role)], rng)
        idea = TALK[0]
        for _, idea in zip(range(NUM_TRIES), said, strict=False):
            if _accepted(env, live, state, idea):
                break
    finally:
        state.baton.give(live)
    return str(env.reply_of(idea))


def _accepted(env: Any, live: Any, state: Any, idea: str) -> bool:
    trial = copy.deepcopy(live)
    with seeded(0):
        env.play(trial, env.read(state, idea), 0)
    return trial.refused is None


def _ideas(texts: tuple[str, ...], rng: random.Random) -> Iterator[str]:
    """Moves to try, without end: as they were shown, then varied more and more."""
    prompt, *said = texts
    newest = _shown(said[-1]) if said else []
    shown = newest + [move for text in reversed(said[:-1]) for move in _shown(text)]
    shown += _shown(prompt)
    first = list(dict.fromkeys(newest))
    rng.shuffle(first)
    yield from first
    every = list(dict.fromkeys(shown)) or ["[0]"]
    quoted = list(dict.fromkeys(match for text in texts for match in QUOTED.findall(text)))
    numbers = [int(number) for text in texts for number in NUMBER.findall(text) if len(number) < 5]
    most = max(numbers, default=9)
    while True:
        yield rng.choice(every)
        for spread in (9, most):
            yield _varied(rng.choice(every), rng, spread)
        if quoted:
            yield rng.choice(quoted)
            yield f"[{rng.choice(quoted)}]"
        yield rng.choice(TALK)


def _shown(text: str) -> list[str]:
    return [move for move in BRACKETED.findall(text) if not SPEAKERS.fullmatch(move)]


def _varied(move: str, rng: random.Random, most: int) -> str:
    """The same form with other numbers and letters; a word that stands for one becomes one."""

    def other(match: re.Match[str]) -> str:
        word = match.group()
        if len(word) == 1:
            letters = string.ascii_uppercase if word.isupper() else string.ascii_lowercase
            return rng.choice(letters[:12] if rng.random() < 0.7 else letters)
        return str(rng.randint(0, most)) if rng.random() < 0.5 else word

    if rng.random() < 0.3 and "|" in move:
        move = f"[{rng.choice(move.strip('[]').split('|')).strip()}]"
    varied = NUMBER.sub(lambda _: str(rng.randint(0, most)), move)
    return WORD.sub(other, varied) if rng.random() < 0.7 else varied
