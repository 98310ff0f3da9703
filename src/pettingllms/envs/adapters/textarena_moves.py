"""The random player of TextArena games, which accept free text.

TextArena's prompts show moves in brackets: `'[4]'`, `[A4 B5]`, `[row col]`, `[Bid: amount]`. The
player collects such forms from the game's texts, newest first, and varies their numbers, letters
and words. It tries candidates on a copy of the game and reads the error messages. It plays the
first candidate that the game accepts, or the last one if the game accepts none.
"""

import copy
import random
import re
import string
from collections.abc import Iterator
from typing import Any

from pettingllms.envs.adapters.library import library_errors, seeded
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
    """A move that the game accepts; see the module docstring."""
    live = env.live(state)
    forms: list[str] = []
    candidates = _candidates(state.view.texts[env.roles.index(role)], forms, rng)
    try:
        for _ in range(NUM_TRIES):
            move = next(candidates)
            error = _try(env, live, state, move)
            if error is None:
                break
            forms += [form for form in _forms_in(error) if form not in forms]
    finally:
        state.live.give(live)
    return str(env.reply_of(move))


def _try(env: Any, live: Any, state: Any, move: str) -> str | None:
    trial = copy.deepcopy(live)
    try:
        with seeded(0), library_errors("it cannot be read"):
            env.play(trial, env.read(state, move), 0)
    except LibraryError as error:
        return str(error)
    refused: str | None = trial.refused
    return refused


def _candidates(texts: tuple[str, ...], forms: list[str], rng: random.Random) -> Iterator[str]:
    """Endless candidate moves: as shown, then varied; `forms` grows meanwhile."""
    prompt, *said = texts
    newest = list(dict.fromkeys(_forms_in(said[-1]) if said else []))
    rng.shuffle(newest)
    yield from newest
    quoted = [match for text in texts for match in QUOTED.findall(text)]
    shown = [move for text in (*reversed(said), prompt) for move in _forms_in(text)]
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
    """Numbers, letters and words from the game's texts to fill a form with."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        text = "\n".join(texts[:1] + texts[-2:])
        numbers = [int(number) for number in NUMBER.findall(text) if len(number) < 5]
        self.most = (3, 5, 8, max(numbers, default=9))
        self.letters = sorted({word for word in WORD.findall(text) if len(word) == 1}) or ["a"]
        self.words = sorted({word for word in WORD.findall(text) if 1 < len(word) < 12}) or ["a"]


def _forms_in(text: str) -> list[str]:
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
