"""Labeled answers: the training data of a verifier.

The accuracy on a question predicts whether an answer to it is correct. A verifier trained on
unbalanced answers therefore learns the difficulty of questions instead of the correctness of
answers: correct answers to hard questions get low scores. With equal numbers of correct and wrong
answers per question and turn, the question alone predicts nothing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pettingllms.config.verifier import VerifierConfig
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.types import (
    TEAM,
    Episode,
    Message,
    Reward,
    Scored,
    Submission,
    Turn,
    user,
)

FORMAT = 1
BUCKETS = 1_000_000
RIGHT = 0.5
"""Minimum score of a correct answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply to one question."""

    question: str
    """Id of the question; all its answers are on the same side of the split."""
    messages: tuple[Message, ...]
    """The role's prompt."""
    text: str
    """The reply."""
    correct: bool
    turn: int = 0
    """Number of earlier turns of the role. Later turns come from episodes that went badly so far,
    so answers are balanced per turn."""


Rule = Callable[[Submission], Reward]
"""The ground truth of an environment."""


def label(
    episodes: Iterable[Episode], config: VerifierConfig, rule: Rule | None = None
) -> list[Answer]:
    """The answers of complete episodes, labeled by the role's success, or as submissions by a rule.

    A question is a task and a role; the environment's randomness is part of its difficulty.
    """
    found: list[Answer] = []
    for episode in episodes:
        if episode.failure is not None or episode.limit:
            continue
        if rule is not None and any(step.submissions for step in episode.steps):
            found += _submitted(episode, config, rule)
            continue
        for number, turn in _answers(episode, config):
            correct = episode.success.get(turn.role)
            if correct is not None:
                question = json.dumps([episode.env, episode.task.id, turn.role])
                found.append(Answer(question, turn.messages, turn.text, correct, number))
    return found


def _submitted(episode: Episode, config: VerifierConfig, rule: Rule) -> Iterator[Answer]:
    """The submissions of roles, with what a verifier reads as a judge: question and answer. Who
    gave an answer, and when, is no part of that. Generated tasks repeat questions, so the question
    is its text and not the task: otherwise test answers would be to questions of training."""
    for at in episode.main_branch():
        for role, shown in episode.steps[at].submissions.items():
            if role == TEAM or (config.roles and role not in config.roles):
                continue
            truth = rule(shown)
            if isinstance(truth, Scored):
                correct = truth.value >= RIGHT
                question = json.dumps([episode.env, shown.question])
                yield Answer(question, (user(shown.question),), shown.answer, correct)


def _answers(episode: Episode, config: VerifierConfig) -> Iterator[tuple[int, Turn]]:
    """Turns with the number of earlier turns of their role."""
    last: dict[str, tuple[int, Turn]] = {}
    num_turns: Counter[str] = Counter()
    for turn in episode.main_turns():
        number = num_turns[turn.role]
        num_turns[turn.role] += 1
        if turn.credit.failure is not None or (config.roles and turn.role not in config.roles):
            continue
        last[turn.role] = number, turn
        if config.turns == "all":
            yield number, turn
    if config.turns == "last":
        yield from last.values()


def balanced(answers: Sequence[Answer], max_each: int, seed: int) -> list[Answer]:
    """As many correct as wrong answers per question and turn, drawn by the seed, in order.

    Duplicate answers count once: otherwise the verifier would learn how frequent an answer is.
    """
    kept: list[Answer] = []
    asked: dict[tuple[str, int], list[Answer]] = {}
    for answer in dict.fromkeys(answers):
        asked.setdefault((answer.question, answer.turn), []).append(answer)
    for question, some in asked.items():
        sides = [[a for a in some if a.correct is label] for label in (True, False)]
        count = min(max_each, *map(len, sides))
        rng = np.random.default_rng(derive_seed(seed, "balance", *question))
        for side in sides:
            kept += [side[at] for at in sorted(rng.permutation(len(side))[:count])]
    return kept


def train_test_split(
    answers: Sequence[Answer], test_share: float, seed: int
) -> tuple[list[Answer], list[Answer]]:
    """Training and test answers; no question is on both sides."""

    def is_test(question: str) -> bool:
        return derive_seed(seed, "test", question) % BUCKETS < test_share * BUCKETS

    kept = {question: is_test(question) for question in by_question(answers)}
    train = [answer for answer in answers if not kept[answer.question]]
    return train, [answer for answer in answers if kept[answer.question]]


def by_question(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    """Answers grouped by question, in order."""
    found: dict[str, list[Answer]] = {}
    for answer in answers:
        found.setdefault(answer.question, []).append(answer)
    return found


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Write answers as JSON lines."""
    lines = [
        json.dumps(
            {
                "format": FORMAT,
                "question": answer.question,
                "messages": [{"role": m.speaker, "content": m.content} for m in answer.messages],
                "answer": answer.text,
                "right": answer.correct,
                "turn": answer.turn,
            }
        )
        for answer in answers
    ]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def read_answers(path: Path) -> list[Answer]:
    """Read answers that `write_answers` wrote."""
    found = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                found.append(_answer(json.loads(line)))
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise DataError(
                    f"{path}, line {number}: not an answer of format {FORMAT} ({error!r}); create "
                    "the file with `pettingllms verifier data`"
                ) from error
    return found


def _answer(data: dict[str, object]) -> Answer:
    messages, correct = data["messages"], data["right"]
    if data["format"] != FORMAT or not isinstance(messages, list) or not isinstance(correct, bool):
        raise ValueError("wrong format, messages not a list, or label missing")
    shown = tuple(Message(m["role"], m["content"]) for m in messages)
    turn = int(str(data.get("turn", 0)))
    return Answer(str(data["question"]), shown, str(data["answer"]), correct, turn)
