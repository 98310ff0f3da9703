"""Compares and prints values in wire format without building them in our processes.

A program chooses its return value. Numbers with equal hashes make a Python set quadratic, and a
number too large for a float raises during comparison. Here elements and keys are compared as
strings, whose hashes cannot be chosen, and the cost is linear in the encoded size.
"""

import json
import math
from itertools import count
from typing import Any, NamedTuple

CLOSE, CLOSE_TO_ZERO = 1e-9, 1e-12
"""Tolerance for floats."""
_unequal = count()
"""NaN equals nothing, not even itself: each one has its own key."""


class Value(NamedTuple):
    """One value: its kind and its content."""

    kind: str
    """number, str, bytes, none, list, tuple, set, frozenset, dict or other."""
    inner: Any
    """Values in a list or tuple; in a set, Values by key; in a dict, pairs of Values by key."""


def parse(text: str) -> Value:
    """The value that was written; ValueError if `wire.encode` did not write it."""
    try:
        return _value(json.loads(text))
    except RecursionError:
        raise ValueError("the value is nested too deep") from None


def same(got: Value, want: Value, loose: bool = False) -> bool:
    """Whether two values are equal in Python's sense; floats need only be very close.

    Loosely, a tuple is as good as a list: for data sets that know JSON alone.
    """
    if got.kind == want.kind == "number":
        return _same_number(got.inner, want.inner)
    kinds = {_kind(got.kind, loose), _kind(want.kind, loose)}
    if len(kinds) > 1:
        return False
    if kinds <= {"list", "tuple"}:
        pairs = zip(got.inner, want.inner, strict=False)
        return len(got.inner) == len(want.inner) and all(same(g, w, loose) for g, w in pairs)
    if kinds == {"dict"}:
        return got.inner.keys() == want.inner.keys() and all(
            same(got.inner[key][1], item, loose) for key, (_, item) in want.inner.items()
        )
    if kinds == {"set"}:
        return bool(got.inner.keys() == want.inner.keys())
    return kinds != {"other"} and bool(got.inner == want.inner)


def text_of(value: Value) -> str:
    """The `repr` of the value; the name of the type if it is not plain data."""
    kind, inner = value
    if kind == "dict":
        pairs = (f"{text_of(key)}: {text_of(item)}" for key, item in inner.values())
        return f"{{{', '.join(pairs)}}}"
    if kind in ("set", "frozenset"):
        elements = ", ".join(map(text_of, inner.values()))
        shown = f"{{{elements}}}" if elements else ""
        return shown if shown and kind == "set" else f"{kind}({shown})"
    if kind in ("list", "tuple"):
        items = ", ".join(map(text_of, inner))
        if kind == "list":
            return f"[{items}]"
        return f"({items},)" if len(inner) == 1 else f"({items})"
    return f"<{inner}>" if kind == "other" else repr(inner)


def _value(plain: Any) -> Value:
    if isinstance(plain, list):
        return Value("list", tuple(map(_value, plain)))
    if isinstance(plain, dict):
        return _tagged(plain)
    if isinstance(plain, str):
        return Value("str", plain)
    return Value("none" if plain is None else "number", plain)


def _tagged(plain: dict[str, Any]) -> Value:
    if len(plain) != 1:
        raise ValueError("a tagged value has one tag")
    ((tag, inner),) = plain.items()
    if tag in ("bytes", "other") and isinstance(inner, str):
        return Value(tag, inner.encode("latin-1") if tag == "bytes" else inner)
    if not isinstance(inner, list):
        raise ValueError(f"nothing has the tag {tag!r:.40}")  # noqa: TRY004 - not a wrong call
    if tag == "tuple":
        return Value("tuple", tuple(map(_value, inner)))
    if tag in ("set", "frozenset"):
        return Value(tag, _by_key([(item, item) for item in map(_value, inner)], first=True))
    if tag == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in inner):
        return Value("dict", _by_key([(_value(key), _value(item)) for key, item in inner]))
    if tag == "complex" and [type(part) for part in inner] == [float, float]:
        return Value("number", complex(*inner))
    raise ValueError(f"nothing has the tag {tag!r:.40}")


def _by_key(pairs: list[tuple[Value, Value]], first: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {_key(pair[0]): pair[0] if first else pair for pair in pairs}
    if len(found) < len(pairs):
        raise ValueError("duplicate element or key")
    return found


def _key(value: Value) -> str:
    """A string that is the same for two values if and only if Python considers them equal."""
    kind, inner = value
    if kind == "number":
        return _number_key(inner)
    if kind == "tuple":
        return _joined("t", map(_key, inner))
    if kind == "frozenset":
        return _joined("f", sorted(inner))
    if kind == "str":
        return f"s{inner}"
    if kind in ("bytes", "none"):
        return f"{kind[0]}{inner!r}"
    raise ValueError(f"{kind} cannot be an element or a key")


def _joined(mark: str, keys: Any) -> str:
    return mark + "".join(f"{len(key)}:{key}" for key in keys)


def _number_key(number: Any) -> str:
    if isinstance(number, complex):
        if number.imag == 0:
            return _number_key(number.real)
        return _joined("c", (_number_key(number.real), _number_key(number.imag)))
    if isinstance(number, float) and not number.is_integer():
        return f"u{next(_unequal)}" if math.isnan(number) else f"r{number.hex()}"
    return f"i{int(number):x}"


def _same_number(got: Any, want: Any) -> bool:
    if not isinstance(got, float) or isinstance(want, complex):
        return bool(got == want)
    try:
        near = math.isclose(got, want, rel_tol=CLOSE, abs_tol=CLOSE_TO_ZERO)
    except OverflowError:  # an integer beyond the range of floats
        return False
    return near or got == want


def _kind(kind: str, loose: bool) -> str:
    return {"frozenset": "set", "tuple": "list" if loose else "tuple"}.get(kind, kind)
