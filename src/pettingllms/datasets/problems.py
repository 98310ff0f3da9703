"""A problem: what is asked, and what is right."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEPT = re.compile(r"\w+|[-+*/^=<>.%()\[\]{}|!×÷·−±√≤≥≠∪∩]")
"""Of a question, what another must share to ask the same."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with one right answer, which is no part of it."""

    id: str
    question: str
    answer: str
    """In plain digits or in LaTeX, without `$`; or one of the choices."""
    choices: tuple[str, ...] = ()
    """All answers that there are; empty where the answer is free, which is mathematics."""
    short: str = ""
    """The question in a few signs, for tiny models; empty where there is no such form."""

    def key(self) -> str:
        """What two problems share that ask the same, written with other spaces, capitals or
        punctuation. Signs that mean something stay: `(2+3)*4` is not `2+(3*4)`, and `5!` not 5."""
        return " ".join(KEPT.findall(self.question.casefold()))

    def to_data(self) -> dict[str, Any]:
        """As the data of a task, which JSON can write."""
        return {
            "question": self.question,
            "answer": self.answer,
            "choices": list(self.choices),
            "short": self.short,
        }

    @classmethod
    def from_data(cls, id: str, data: Mapping[str, Any]) -> "Problem":  # noqa: A002
        """Back from the data of a task."""
        short, choices = str(data["short"]), tuple(data["choices"])
        return cls(id, str(data["question"]), str(data["answer"]), choices, short)
