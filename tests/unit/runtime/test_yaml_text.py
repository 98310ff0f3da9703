import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.runtime.yaml_text import to_yaml

TEXTS = st.one_of(
    st.text(max_size=30),
    st.text(alphabet=string.ascii_letters + " \n:#-'\"{}[]|>%@&*!?\t", max_size=40),
    st.sampled_from(
        ["yes", "No", "null", "~", "1e3", "0x1f", "1:30", "<<", "=", "a\n", "\n", " a\n"]
    ),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-9, 99), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.dictionaries(TEXTS, inner, max_size=4)
        | st.lists(SCALARS | st.dictionaries(TEXTS, inner, max_size=3), max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=5))
def test_what_is_written_reads_back(data) -> None:
    assert yaml.safe_load(to_yaml(data)) == data


def test_text_of_several_lines_is_readable() -> None:
    assert to_yaml({"run": "set -eu\n\n  echo a: b\n"}) == "run: |\n  set -eu\n\n    echo a: b\n"


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        to_yaml({"a": {1}})
