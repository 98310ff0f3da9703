"""Generated episodes: images, tables, failures, and arrays of any length in all fields."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from pettingllms.types import (
    Credit,
    Episode,
    Failed,
    Image,
    Message,
    Rewards,
    Scored,
    Step,
    Submission,
    Table,
    Task,
    TreeLinks,
    Turn,
    Usage,
    VersionRun,
)

RED, BLUE = Image(b"red"), Image(b"blue")
names = st.sampled_from(["a", "b", "long name", "", "é"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
numbers = st.floats(allow_nan=False, allow_infinity=False)
failures = st.builds(Failed, texts, st.sampled_from(["environment", "sampler", "judge", "limit"]))
rewards = st.one_of(st.builds(Scored, st.floats(-1e9, 1e9)), failures)
cells = st.one_of(texts, st.integers(), numbers, st.booleans(), st.none())
plain = st.recursive(
    cells, lambda x: st.lists(x, max_size=3) | st.dictionaries(texts, x, max_size=3)
)
ints = st.integers(-(2**31), 2**31 - 1)


@st.composite
def tables(draw: Any) -> Table:
    columns = tuple(draw(st.lists(texts, max_size=3)))
    return Table(columns, tuple(draw(st.lists(st.tuples(*(cells for _ in columns)), max_size=3))))


messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant"]),
    texts,
    st.lists(st.one_of(st.sampled_from([RED, BLUE]), tables()), max_size=2).map(tuple),
)


sizes = st.integers(0, 6)


def ids(size: Any = sizes) -> Any:
    """Few values, so that prompts share prefixes, or any."""
    value = st.one_of(st.integers(0, 3), ints)
    return size.flatmap(lambda n: st.lists(value, min_size=n, max_size=n)).map(
        lambda found: np.array(found, np.int32)
    )


def floats(size: int, values: Any = finite) -> Any:
    return st.lists(values, min_size=size, max_size=size).map(lambda x: np.array(x, np.float32))


version_runs = st.builds(VersionRun, st.integers(0, 10**9), st.integers(1, 10**6))


@st.composite
def turns(draw: Any, shared: Any) -> Turn:
    num, num_values = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    credit = Credit(
        failure=draw(st.none() | failures),
        advantage=draw(st.none() | numbers),
        advantages=draw(st.none() | floats(num)),
        values=draw(st.none() | floats(num_values)),
        counterfactual_value=draw(st.none() | numbers),
        returns=draw(st.none() | floats(num_values)),
        learner_logprobs=draw(st.none() | floats(num) | floats(num_values)),
    )
    return Turn(
        role=draw(names),
        policy=draw(names),
        messages=draw(shared),
        prompt_ids=draw(ids()),
        response_ids=draw(ids(st.just(num))),
        logprobs=draw(st.none() | floats(num)),
        text=draw(texts),
        policy_version=draw(st.none() | st.integers(0, 10**9)),
        finish=draw(st.sampled_from(["stop", "length"])),
        ends=draw(st.none() | ids(st.just(num))),
        usage=draw(st.none() | st.builds(Usage, st.integers(0), st.integers(0))),
        guided=draw(st.booleans()),
        limit=draw(texts),
        centralized_ids=draw(st.none() | ids()),
        centralized_images=draw(st.sampled_from([(), (RED,), (BLUE, RED)])),
        later_versions=draw(st.lists(version_runs, max_size=2).map(tuple)),
        credit=credit,
        links=TreeLinks(
            *draw(st.tuples(*[st.none() | st.integers(0, 5)] * 4)),
        ),
    )


levels = st.dictionaries(names, rewards, max_size=2)
steps = st.builds(
    Step,
    parent=st.none(),
    turns=st.just(()),
    rewards=st.builds(Rewards, levels, levels, st.none() | rewards),
    metrics=st.dictionaries(texts, numbers, max_size=2),
    submissions=st.dictionaries(
        names,
        st.builds(Submission, texts, texts, texts, st.dictionaries(texts, plain, max_size=2)),
        max_size=2,
    ),
    limit=texts,
    final=st.booleans(),
)


@st.composite
def episodes(draw: Any) -> Episode:
    """An episode whose steps form a chain, and whose turns may share their messages."""
    shared = st.sampled_from(draw(st.lists(st.lists(messages, max_size=3).map(tuple), min_size=1)))
    found = draw(st.lists(turns(shared), max_size=4))
    chain = draw(st.lists(steps, max_size=3))
    for number, step in enumerate(chain):
        step.parent = number - 1 if number else None
        step.turns = tuple(range(number, len(found), len(chain)))
    return Episode(
        id=draw(texts),
        env=draw(texts),
        task=Task(draw(texts), draw(st.dictionaries(texts, plain, max_size=2)), draw(ints)),
        seed=draw(st.integers(0, 2**63)),
        turns=found,
        steps=chain,
        last=len(chain) - 1 if chain else None,
        success=draw(st.dictionaries(names, st.booleans(), max_size=2)),
        best_of=draw(st.integers(1, 4)),
        first_success=draw(st.dictionaries(names, numbers, max_size=2)),
        answers=draw(st.dictionaries(names, texts, max_size=2)),
        failure=draw(st.none() | failures),
        num_extra_tokens=draw(st.integers(0)),
        dropped_tokens=draw(st.dictionaries(names, st.integers(0), max_size=2)),
        without=draw(st.dictionaries(names, st.integers(0, 2) | failures, max_size=2)),
    )


def values_of(record: Any) -> Any:
    """All fields as values that compare exactly: arrays by type and bits, numbers by type."""
    if isinstance(record, np.ndarray):
        return str(record.dtype), record.shape, record.tobytes()
    if hasattr(record, "__dataclass_fields__"):
        fields = record.__dataclass_fields__
        return {name: values_of(getattr(record, name)) for name in fields}
    if isinstance(record, dict):
        return {name: values_of(value) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [values_of(value) for value in record]
    return type(record).__name__, repr(record)
