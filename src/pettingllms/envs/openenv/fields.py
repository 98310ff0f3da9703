"""JSON messages from outside: values that know their path, and what is checked before use.

Both sides of a connection treat the other as untrusted. A `Field` knows its path in the message, so
every error names what was received, where, and what was expected. Nothing is unpickled or
evaluated.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pettingllms.errors import WireError
from pettingllms.types.rewards import MAX_REWARD

MAX_TEXT = 2**22
"""Most characters of a text of an observation."""
MAX_METRIC = 2.0**53
"""Metrics may count or identify something; a float holds whole numbers up to this one."""


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a message, with its path for errors."""

    path: str
    value: Any

    def reject(self, expected: str) -> NoReturn:
        """Raise WireError: what was received, and what was expected."""
        shown = ascii(self.value) if not isinstance(self.value, dict | list) else _kind(self.value)
        got = "is missing" if self.value is None else f"is {shown:.80}"
        raise WireError(f"{self.path} {got}; expected {expected}")

    def __getitem__(self, name: str) -> "Field":
        """A value of an object; None if it is absent."""
        return Field(f"{self.path}.{name}", self.entries()[name] if self.has(name) else None)

    def has(self, name: str) -> bool:
        """Whether an object has a value that is not null."""
        return self.entries().get(name) is not None

    def entries(self) -> dict[str, Any]:
        """An object."""
        if not isinstance(self.value, dict):
            self.reject("an object")
        return self.value

    def fields(self, most: int) -> dict[str, "Field"]:
        """The values of an object by name; none if it is null."""
        if self.value is None:
            return {}
        found = self.entries()
        if len(found) > most:
            self.reject(f"at most {most} entries")
        return {name: Field(f"{self.path}.{ascii(name)[1:-1]:.40}", one)
                for name, one in found.items()}  # fmt: skip

    def items(self, most: int) -> list["Field"]:
        """The items of a list; none if it is null."""
        if self.value is None:
            return []
        if not isinstance(self.value, list) or len(self.value) > most:
            self.reject(f"a list of at most {most}")
        return [Field(f"{self.path}[{at}]", one) for at, one in enumerate(self.value)]

    def text(self, most: int = MAX_TEXT) -> str:
        """A string; lone surrogates, which UTF-8 cannot express, become question marks."""
        if not isinstance(self.value, str):
            self.reject("a string")
        if len(self.value) > most:
            raise WireError(f"{self.path} has {len(self.value)} characters; at most {most} allowed")
        return clean(self.value)

    def one_of(self, known: Sequence[str]) -> str:
        """One of several strings."""
        if not isinstance(self.value, str) or self.value not in known:
            self.reject(f"one of {', '.join(known)}"[:400])
        return self.value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.reject("true or false")
        return self.value

    def whole(self, low: int, below: int) -> int:
        """A whole number of a range."""
        if type(self.value) is not int or not low <= self.value < below:
            self.reject(f"a whole number from {low} to {below - 1}")
        return self.value

    def number(self, most: float = MAX_REWARD) -> float:
        """A finite number."""
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not is_number or not abs(self.value) <= most:
            self.reject(f"a number from {-most:g} to {most:g}")
        return float(self.value)


def clean(text: str) -> str:
    """The text without lone surrogates, which no UTF-8 message can carry."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def read_object(text: str | bytes, what: str) -> Field:
    """A message as a JSON object, without NaN and infinity."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise WireError(f"{what} is nested too deeply; expected a JSON object") from None
    except ValueError as error:
        raise WireError(f"{what} is not JSON ({error}); expected a JSON object") from None
    answer = Field(what, found)
    answer.entries()
    return answer


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _kind(value: object) -> str:
    return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"  # type: ignore[arg-type]
