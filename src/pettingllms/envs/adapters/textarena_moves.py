"""How a random player finds a move in a game that takes any text.

TextArena's prompts show moves in brackets: `'[4]'`, `[A4 B5]`, `[row col]`, `[Bid: amount]`. The
player collects what the game itself wrote, newest first, and varies it: other numbers, other
letters, one of several words. It tries its ideas on a copy of the game, reads what the game says
against them, and says the first that the game accepts. When none is accepted it says the last one,
and the game prices it.
"""

import copy
import random
import re
import string
from collections.abc import Iterator
from typing import Any

from pettingllms.envs.adapters.chance import seeded
from pettingllms.envs.adapters.library import asked_of_library
from pettingllms.errors import LibraryError

NUM_TRIES = 300
BRACKETED = re.compile(r"\[[^\[\]\n]{1,60}\]")
QUOTED = re.compile(r"(?<!\w)['\"`]([^'\"`\n\[\]]{1,30})['\"`](?!\w)")
NUMBER = re.compile(r"\d+")
WORD = re.compile(r"[A-Za-z]+")
PLACEHOLDER = re.compile(r"<[^<>]*>")
SPEAKERS = re.compile(r"\[(GAME|Player|PLAYER)[^\]]*\]")
TALK = ("I agree.", "Let us go on.", "What do you think?", "No, thank you.")


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A move that the game accepts, found as the module's text says."""
    live = env.live(state)
    forms: list[str] = []
    said = _ideas(state.view.texts[env.roles.index(role)], forms, rng)
    try:
        for _ in range(NUM_TRIES):
            idea = next(said)
            refusal = _refusal(env, live, state, idea)
            if refusal is None:
                break
            forms += [form for form in _shown(refusal) if form not in forms]
    finally:
        state.baton.give(live)
    return str(env.reply_of(idea))


def _refusal(env: Any, live: Any, state: Any, idea: str) -> str | None:
    trial = copy.deepcopy(live)
    try:
        with seeded(0), asked_of_library("it cannot be read"):
            env.play(trial, env.read(state, idea), 0)
    except LibraryError as error:
        return str(error)
    refused: str | None = trial.refused
    return refused


def _ideas(texts: tuple[str, ...], forms: list[str], rng: random.Random) -> Iterator[str]:
    """Moves to try, without end: as they were shown, then varied; `forms` grows meanwhile."""
    prompt, *said = texts
    newest = list(dict.fromkeys(_shown(said[-1]) if said else []))
    rng.shuffle(newest)
    yield from newest
    quoted = [match for text in texts for match in QUOTED.findall(text)]
    shown = [move for text in (*reversed(said), prompt) for move in _shown(text)]
    forms += list(dict.fromkeys(["[0]", *shown, *(f"[{text}]" for text in quoted if " " in text)]))
    words = Vocabulary(texts)
    while True:
        yield rng.choice(forms)
        for _ in range(12):
            yield _varied(rng.choice(forms), rng, words)
        if quoted:
            yield rng.choice(quoted)
            yield f"[{rng.choice(quoted)}]"
        yield rng.choice(TALK)


class Vocabulary:
    """What the game's own texts offer to fill a form with."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        text = "\n".join(texts[:1] + texts[-2:])
        numbers = [int(number) for number in NUMBER.findall(text) if len(number) < 5]
        self.most = (3, 5, 8, max(numbers, default=9))
        self.letters = sorted({word for word in WORD.findall(text) if len(word) == 1}) or ["a"]
        self.words = sorted({word for word in WORD.findall(text) if 1 < len(word) < 12}) or ["a"]


def _shown(text: str) -> list[str]:
    return [move for move in BRACKETED.findall(text) if not SPEAKERS.fullmatch(move)]


def _varied(move: str, rng: random.Random, known: Vocabulary) -> str:
    """The same form with other numbers, letters and words."""
    most, fill = rng.choice(known.most), rng.random()

    def other(match: re.Match[str]) -> str:
        word = match.group()
        if len(word) == 1 and fill < 0.5:
            return rng.choice(known.letters) if fill < 0.25 else str(rng.randint(0, most))
        if len(word) == 1:
            letters = string.ascii_uppercase if word.isupper() else string.ascii_lowercase
            return rng.choice(letters[: most + 3])
        if fill < 0.5:
            return word
        return str(rng.randint(0, most)) if fill < 0.8 else rng.choice(known.words)

    if rng.random() < 0.3 and "|" in move:
        move = f"[{rng.choice(move.strip('[]').split('|')).strip()}]"
    move = PLACEHOLDER.sub("0", move)
    return WORD.sub(other, NUMBER.sub(lambda _: str(rng.randint(0, most)), move))
