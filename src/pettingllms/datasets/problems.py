"""A problem: a question and its answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEPT = re.compile(r"\w+|[-+*/^=<>.%()\[\]{}|!×÷·−±√≤≥≠∪∩]")
"""The parts of a question that identify it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with one correct answer."""

    id: str
    question: str
    answer: str
    """In plain digits or in LaTeX, without `$`; or one of the choices."""
    choices: tuple[str, ...] = ()
    """All possible answers; empty for free-form (math) answers."""
    short: str = ""
    """A short form of the question for tiny models; empty if there is none."""

    def key(self) -> str:
        """A key that ignores whitespace, case and punctuation. Meaningful signs stay: `(2+3)*4` is
        not `2+(3*4)`, and `5!` is not 5."""
        return " ".join(KEPT.findall(self.question.casefold()))

    def to_data(self) -> dict[str, Any]:
        """The JSON data of a task."""
        return {
            "question": self.question,
            "answer": self.answer,
            "choices": list(self.choices),
            "short": self.short,
        }

    @classmethod
    def from_data(cls, id: str, data: Mapping[str, Any]) -> "Problem":  # noqa: A002
        """The problem from the data of a task."""
        short, choices = str(data["short"]), tuple(data["choices"])
        return cls(id, str(data["question"]), str(data["answer"]), choices, short)
