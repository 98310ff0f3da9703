"""What a learner and its engines agree on: which tensors are sent together."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.transfer.link import Entry, Manifest, block_of

NAMES = [
    "model.embed_tokens.weight",
    *(
        f"model.layers.{layer}.{part}.weight"
        for layer in range(3)
        for part in ("self_attn.q_proj", "mlp.gate_proj", "self_attn.k_proj", "mlp.up_proj")
    ),
    "model.norm.weight",
]


@given(st.lists(st.integers(0, 40), min_size=len(NAMES), max_size=len(NAMES)), st.integers(1, 60))
def test_buckets_have_every_tensor_once_and_stay_below_the_limit(
    sizes: list[int], room: int
) -> None:
    entries = tuple(Entry(name, (size,)) for name, size in zip(NAMES, sizes, strict=True))
    buckets = list(Manifest("float32", entries, 4 * room).buckets())
    assert sorted(one for bucket in buckets for one in bucket) == sorted(entries)
    for bucket in buckets:
        assert len(bucket) == 1 or sum(one.numel for one in bucket) <= room


def test_tensors_that_an_engine_fuses_share_a_bucket() -> None:
    entries = tuple(Entry(name, (2, 5)) for name in NAMES)
    for bucket in Manifest("bfloat16", entries, 2 * 25).buckets():
        blocks = {block_of(entry.name) for entry in bucket}
        for block in blocks:
            whole = {entry.name for entry in entries if block_of(entry.name) == block}
            assert whole <= {entry.name for entry in bucket}


def test_half_the_elements_fit_if_they_are_twice_as_wide() -> None:
    entries = tuple(Entry(f"layers.{at}.w", (8,)) for at in range(8))
    assert len(list(Manifest("bfloat16", entries, 64).buckets())) == 2
    assert len(list(Manifest("float32", entries, 64).buckets())) == 4


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("model.layers.3.mlp.experts.7.w1.weight", "model.layers.3.mlp"),
        ("visual.blocks.0.attn.qkv.bias", "visual.blocks.0.attn"),
        ("lm_head.weight", "lm_head.weight"),
    ],
)
def test_a_block_is_a_part_of_the_outermost_layer(name: str, block: str) -> None:
    assert block_of(name) == block


def test_a_manifest_survives_as_plain_data() -> None:
    made = Manifest("float32", (Entry("a", (2, 3)),), 8)
    plain = asdict(made)
    plain["entries"] = [["a", [2, 3]]]
    assert Manifest.from_plain(plain) == made
