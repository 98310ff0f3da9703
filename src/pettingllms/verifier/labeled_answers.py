"""Answers with labels: what a verifier learns from.

How often a question is answered right says much about an answer to it, so a verifier that is shown
answers as they come learns how hard questions are, and says so: right answers to hard questions get
low scores. It looks good wherever difficulty comes along, and misleads whoever compares answers to
different questions or sets a bar. With as many right as wrong answers of each question, and of each
turn in which it was answered, there is nothing to be learnt from the question.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pettingllms.config.verifier import VerifierConfig
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Message, Turn

FORMAT = 1
BUCKETS = 1_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply to one question."""

    question: str
    """Answers of one name are kept on one side of the split."""
    messages: tuple[Message, ...]
    """What the role was shown."""
    text: str
    """What it said."""
    right: bool
    turn: int = 0
    """How often the role had spoken before. Later answers are of plays that went badly until then,
    so answers are balanced with those of their own turn."""


def label(episodes: Iterable[Episode], config: VerifierConfig) -> list[Answer]:
    """The answers of plays that came to an end, by whether the role reached its aim.

    A question is a task and a role in it: what chance added is part of how hard it was.
    """
    found: list[Answer] = []
    for episode in episodes:
        if episode.failure is not None or episode.limit:
            continue
        for number, turn in _answers(episode, config):
            right = episode.success.get(turn.role)
            if right is not None:
                question = json.dumps([episode.env, episode.task.id, turn.role])
                found.append(Answer(question, turn.messages, turn.text, right, number))
    return found


def _answers(episode: Episode, config: VerifierConfig) -> Iterator[tuple[int, Turn]]:
    """Turns with how often their role had spoken before."""
    last: dict[str, tuple[int, Turn]] = {}
    spoken: Counter[str] = Counter()
    for turn in episode.main_turns():
        number = spoken[turn.role]
        spoken[turn.role] += 1
        if turn.credit.failure is not None or (config.roles and turn.role not in config.roles):
            continue
        last[turn.role] = number, turn
        if config.turns == "all":
            yield number, turn
    if config.turns == "last":
        yield from last.values()


def balanced(answers: Sequence[Answer], max_each: int, seed: int) -> list[Answer]:
    """Of each question and turn as many right as wrong answers, drawn by the seed, in their order.

    An answer that was given several times counts once: copies would be balanced with answers that
    differ, and teach how often something is said.
    """
    kept: list[Answer] = []
    asked: dict[tuple[str, int], list[Answer]] = {}
    for answer in dict.fromkeys(answers):
        asked.setdefault((answer.question, answer.turn), []).append(answer)
    for question, some in asked.items():
        sides = [[a for a in some if a.right is right] for right in (True, False)]
        count = min(max_each, *map(len, sides))
        rng = np.random.default_rng(derive_seed(seed, "balance", *question))
        for side in sides:
            kept += [side[at] for at in sorted(rng.permutation(len(side))[:count])]
    return kept


def parted(
    answers: Sequence[Answer], test_share: float, seed: int
) -> tuple[list[Answer], list[Answer]]:
    """What is learnt from and what is kept for a test. No question is on both sides."""

    def is_test(question: str) -> bool:
        return derive_seed(seed, "test", question) % BUCKETS < test_share * BUCKETS

    kept = {question: is_test(question) for question in by_question(answers)}
    learnt = [answer for answer in answers if not kept[answer.question]]
    return learnt, [answer for answer in answers if kept[answer.question]]


def by_question(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    """Answers by question, in the order in which they come."""
    found: dict[str, list[Answer]] = {}
    for answer in answers:
        found.setdefault(answer.question, []).append(answer)
    return found


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Write one line for each."""
    lines = [
        json.dumps(
            {
                "format": FORMAT,
                "question": answer.question,
                "messages": [{"role": m.speaker, "content": m.content} for m in answer.messages],
                "answer": answer.text,
                "right": answer.right,
                "turn": answer.turn,
            }
        )
        for answer in answers
    ]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def read_answers(path: Path) -> list[Answer]:
    """Read what `write_answers` wrote."""
    found = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                found.append(_answer(json.loads(line)))
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise DataError(
                    f"{path}, line {number}: no answer of format {FORMAT} ({error!r}); write it "
                    "with `pettingllms verifier data`"
                ) from error
    return found


def _answer(data: dict[str, object]) -> Answer:
    messages, right = data["messages"], data["right"]
    if data["format"] != FORMAT or not isinstance(messages, list) or not isinstance(right, bool):
        raise ValueError("another format, or no list of messages, or no label")
    shown = tuple(Message(m["role"], m["content"]) for m in messages)
    turn = int(str(data.get("turn", 0)))
    return Answer(str(data["question"]), shown, str(data["answer"]), right, turn)
