"""Python values as one line of JSON that keeps their types, for plain data only.

Return values of programs leave their process in this format. Only the data of the built-in types
below is written, whatever their classes override, so a value that claims equality with everything
loses that claim. This file also runs inside the sandbox and needs only the standard library. Decode
return values only there, since building them may take any time; `wire_values` compares them
outside.
"""

import json

LISTS = {"tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: object) -> str:
    """One line of ASCII. Values other than plain data become the name of their type."""
    return json.dumps(_plain(value))


def decode(text: str) -> object:
    """The value that was written; ValueError if it was not written by `encode`."""
    try:
        return _value(json.loads(text))
    except (TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"this is no value on the wire: {error}") from None


class Opaque:
    """Placeholder for a value that is not plain data; unequal to everything, including itself."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def _plain(value: object) -> object:  # noqa: C901 - one line for each type
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [_plain(item) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [_plain(item) for item in tuple.__iter__(value)]}
    if isinstance(value, set):
        return {"set": [_plain(item) for item in set.__iter__(value)]}
    if isinstance(value, frozenset):
        return {"frozenset": [_plain(item) for item in frozenset.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[_plain(key), _plain(item)] for key, item in dict.items(value)]}
    if isinstance(value, bytes):
        return {"bytes": bytes.decode(value, "latin-1")}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return {"other": type(value).__name__[:60]}


def _value(plain: object) -> object:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) != 1:
        raise ValueError("a tagged value has one tag")
    ((tag, inner),) = plain.items()
    if tag in LISTS and isinstance(inner, list):
        return LISTS[tag](_value(item) for item in inner)
    if tag == "dict":
        return {_value(key): _value(item) for key, item in inner}
    if tag == "bytes" and isinstance(inner, str):
        return inner.encode("latin-1")
    if tag == "complex":
        return complex(*inner)
    if tag == "other" and isinstance(inner, str):
        return Opaque(inner)
    raise ValueError(f"no value has the tag {tag!r:.40}")
