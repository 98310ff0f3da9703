"""The number of JSON values in a body is bounded before it is parsed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.gateway import rate_limits as bounds
from pettingllms.gateway.calls import CallError
from pettingllms.gateway.rate_limits import Bounds, check_size

TEXT = st.text(st.sampled_from('a{["\\\\,:]}\\u00e9'), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=30,
)


def num_objects(data: Any) -> int:
    if isinstance(data, dict):
        return 1 + sum(map(num_objects, data.values()))
    return sum(map(num_objects, data)) if isinstance(data, list) else 0


def accepts(body: bytes, **limits: int) -> bool:
    try:
        check_size(body, Bounds(**limits))
    except CallError:
        return False
    return True


@given(data=JSON, size=st.integers(1, 9), ascii_only=st.booleans())
def test_objects_are_counted_and_text_is_not(data: Any, size: int, ascii_only: bool) -> None:
    body = json.dumps({"data": data}, ensure_ascii=ascii_only).encode()
    num = num_objects({"data": data})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "SLICE", size)
        assert accepts(body, max_objects=num)
        assert not accepts(body, max_objects=num - 1)


def num_values(data: Any) -> int:
    """All values and names."""
    if isinstance(data, dict):
        return 1 + len(data) + sum(map(num_values, data.values()))
    return 1 + sum(map(num_values, data)) if isinstance(data, list) else 1


@given(data=JSON, size=st.integers(1, 9))
def test_values_are_bounded(data: Any, size: int) -> None:
    """The count is at least the number of values and at most three times that number."""
    body = json.dumps({"data": data}).encode()
    num = num_values({"data": data})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "SLICE", size)
        assert accepts(body, max_values=3 * num)
        assert not accepts(body, max_values=max(0, (num - 2) // 3))


def test_a_long_text_of_punctuation_is_accepted() -> None:
    text = '{"a": [1, 2, {}]}, \\ \n' * 100_000
    assert accepts(json.dumps({"messages": [{"role": "user", "content": text}]}).encode())
