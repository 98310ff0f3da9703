"""Values as they arrive on the wire: equal where Python says so, at a bounded cost."""

import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.datasets.wire import decode, encode
from pettingllms.datasets.wire_values import parse, same, text_of

NUMBERS = (
    st.integers(-3, 3)
    | st.booleans()
    | st.sampled_from([0.0, -0.0, 1.0, 1.5, math.inf, 1e300, 10**300, 2.0**70, 2**70, 1j, 1 + 0j])
)
HASHABLE = st.recursive(
    NUMBERS | st.none() | st.text("ab", max_size=2) | st.binary(max_size=1),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
VALUES = st.recursive(
    HASHABLE | st.sets(HASHABLE, max_size=3) | st.dictionaries(HASHABLE, HASHABLE, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=3)
    ),
    max_leaves=6,
)


def exact(value: object) -> object:
    """Without floats outside of sets and keys, which are compared by closeness there."""
    if isinstance(value, float):
        return str(value)
    if isinstance(value, list | tuple):
        return type(value)(map(exact, value))
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return value


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(VALUES.map(exact), VALUES.map(exact))
def test_values_are_equal_where_python_says_so(one: object, other: object) -> None:
    assert same(parse(encode(one)), parse(encode(one)))
    assert same(parse(encode(one)), parse(encode(other))) == (one == other)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(VALUES)
def test_values_are_shown_as_python_writes_them(value: object) -> None:
    shown = text_of(parse(encode(value)))
    back = eval(shown, {"inf": math.inf, "infj": complex(0, math.inf)})  # noqa: S307
    assert back == decode(encode(value))


def test_floats_need_only_be_close_and_tuples_may_be_lists() -> None:
    third = parse(encode(1 / 3))
    assert same(parse(encode(0.33333333333)), third)
    assert not same(parse(encode(0.3334)), third)
    assert not same(parse(encode(1.5)), parse("1" * 400))
    pair, listed = parse(encode((1, (2,)))), parse(encode([1, [2]]))
    assert same(pair, listed, loose=True)
    assert not same(pair, listed)


def test_nan_equals_nothing() -> None:
    for value in (math.nan, {math.nan}, {math.nan: 1}, (math.nan,), complex(math.nan, 1)):
        assert not same(parse(encode(value)), parse(encode(value)))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"complex": [int("9" * 400), 0]}),
        '{"complex": [1, 2]}',
        '{"complex": [1.0]}',
        '{"complex": "ab"}',
        '{"set": [1, 1.0]}',
        '{"set": [[1]]}',
        '{"set": 5}',
        '{"dict": [[1, 2], [1, 3]]}',
        '{"dict": [[1]]}',
        '{"dict": 5}',
        '{"bytes": "\\u1234"}',
        '{"tuple": {}}',
        '{"no": 1}',
        '{"set": [], "tuple": []}',
        "9" * 5000,
        "[" * 100_000 + "]" * 100_000,
        "",
        "{",
        "nul",
    ],
    ids=range(19),
)
def test_what_no_honest_sender_writes_is_no_value(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the kind is the contract
        parse(text)


@pytest.mark.parametrize("tag", ["set", "frozenset", "dict"])
def test_hashes_that_collide_cost_no_more_than_others(tag: str) -> None:
    """A Python set of these numbers compares each with each: it took 21 s in review."""
    numbers = [k * (2**61 - 1) for k in range(20_000)]
    text = json.dumps({tag: [[k, 0] for k in numbers] if tag == "dict" else numbers})
    start = time.process_time()
    value = parse(text)
    assert same(value, parse(text))
    assert len(text_of(value)) > 100_000
    assert time.process_time() - start < 5
