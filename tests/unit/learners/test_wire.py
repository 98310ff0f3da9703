import pickle

import numpy as np
import pytest

from pettingllms.learners.batches import Item, Pair
from pettingllms.learners.serialization import ARRAYS, Rows, Units
from pettingllms.types import Image


def _item(seed: int, **fields: object) -> Item:
    rng = np.random.default_rng(seed)
    prompt, reply = rng.integers(0, 9, 1 + seed), rng.integers(0, 9, seed % 3)
    return Item(prompt, reply, rng.random(seed % 3, dtype=np.float32), seed / 7, **fields)


def _same(one: Item, other: Item) -> bool:
    for name in ARRAYS:
        a, b = getattr(one, name), getattr(other, name)
        if (a is None) != (b is None):
            return False
        if a is not None and not (a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)):
            return False
    return one.advantage == other.advantage and one.images == other.images


def test_replies_arrive_as_they_were_sent() -> None:
    some = np.array([0.5, np.nan], dtype=np.float32)
    sent = [_item(0), _item(1, values=some), _item(2, targets=some, reference=some), _item(3)]
    arrived = pickle.loads(pickle.dumps(Units(sent)))  # noqa: S301 - our own
    assert len(arrived) == 4
    assert all(_same(*both) for both in zip(sent, arrived, strict=True))


def test_pairs_stay_pairs_among_single_replies() -> None:
    sent = [_item(1), Pair(_item(2), _item(3)), _item(4)]
    first, pair, last = pickle.loads(pickle.dumps(Units(sent)))  # noqa: S301 - our own
    assert _same(first, sent[0])
    assert _same(pair.chosen, sent[1].chosen)
    assert _same(pair.rejected, sent[1].rejected)
    assert _same(last, sent[2])


def test_images_stay_with_their_replies() -> None:
    image = Image(b"picture")
    sent = [_item(1), _item(2, images=(image,)), _item(3)]
    arrived = pickle.loads(pickle.dumps(Units(sent)))  # noqa: S301 - our own
    assert [one.images for one in arrived] == [(), (image,), ()]


@pytest.mark.parametrize("sent", [[], [np.zeros(0, np.float32)], [np.arange(3.0), np.ones(1)]])
def test_rows_arrive_as_they_were_sent(sent: list[np.ndarray]) -> None:
    arrived = pickle.loads(pickle.dumps(Rows(sent)))  # noqa: S301 - our own
    assert len(arrived) == len(sent)
    assert all(np.array_equal(*both) for both in zip(sent, arrived, strict=True))


def test_no_units_are_no_units() -> None:
    assert pickle.loads(pickle.dumps(Units())) == []  # noqa: S301 - our own
