"""Packed LoRA adapters against one product per row."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from pettingllms.inference.packed_adapters import AdapterRows, add_product, pack

SIZE = 32
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 4e-2}
BATCHES = {
    "one adapter": [1] * 7,
    "base alone": [-1] * 7,
    "base and one adapter": [-1, 2, 2, -1, -1, 2, -1],
    "equal numbers": [0, 1, 2, 0, 1, 2],
    "padded": [-1, 0, 2, -1, 2, 0, 1, 2],
    "slots apart": [3, 0, 0, 3, 3],
    "too much padding": [0] + [1] * 20 + [2] + [-1],
}


def make_layer(rank: int, outputs: tuple[int, ...], dtype: torch.dtype) -> SimpleNamespace:
    """The adapters of one of vLLM's linear layers, four slots."""
    torch.manual_seed(0)
    return SimpleNamespace(
        lora_a_stacked=tuple(torch.randn(4, 1, rank, SIZE).to(dtype) / 8 for _ in outputs),
        lora_b_stacked=tuple(torch.randn(4, 1, size, rank).to(dtype) / 8 for size in outputs),
    )


def expected_rows(
    layer: SimpleNamespace, x: torch.Tensor, y: torch.Tensor, index: list[int]
) -> torch.Tensor:
    rows = []
    for slot, one, before in zip(index, x.double(), y.double(), strict=True):
        if slot < 0:
            rows.append(before)
            continue
        parts = zip(layer.lora_a_stacked, layer.lora_b_stacked, strict=True)
        product = [b[slot, 0].double() @ (a[slot, 0].double() @ one) for a, b in parts]
        rows.append(before + torch.cat(product))
    return torch.stack(rows)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("outputs", [(24,), (24, 8, 8)])
@pytest.mark.parametrize("rank", [4, 20])
@pytest.mark.parametrize("batch", BATCHES)
def test_each_row_gets_the_product_of_its_adapter(
    batch: str, rank: int, outputs: tuple[int, ...], dtype: torch.dtype
) -> None:
    index, layer = BATCHES[batch], make_layer(rank, outputs, dtype)
    x, y = torch.randn(len(index), SIZE).to(dtype), torch.randn(len(index), sum(outputs)).to(dtype)
    expected = expected_rows(layer, x, y, index)
    before = y.clone()
    pack(layer)
    add_product(y, x, layer.lora_a_stacked.packed, AdapterRows.from_index(torch.tensor(index)))
    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(y.double(), expected, **close)
    is_base = torch.tensor(index) < 0
    assert torch.equal(y[is_base], before[is_base])
    torch.testing.assert_close(expected_rows(layer, x, before, index), expected)


def test_the_batches_cover_every_way_to_multiply() -> None:
    made = {name: AdapterRows.from_index(torch.tensor(index)) for name, index in BATCHES.items()}
    assert not made["one adapter"].rows
    assert not made["base alone"].slots
    assert made["equal numbers"].padded is not None
    assert made["equal numbers"].places is None
    assert made["padded"].places is not None
    assert isinstance(made["slots apart"].selection, list)
    assert made["too much padding"].padded is None
    assert len(made["too much padding"].rows) == 3


def test_weights_that_vllm_writes_later_are_used() -> None:
    """As `set_lora` does: it clears a slot and copies a smaller adapter into it."""
    layer = make_layer(8, (24, 8), torch.float32)
    pack(layer)
    packed = layer.lora_a_stacked.packed
    for part in (*layer.lora_a_stacked, *layer.lora_b_stacked):
        part[1] = 0
    a, b = torch.randn(4, SIZE), torch.randn(8, 4)
    layer.lora_a_stacked[1][1, 0, :4].copy_(a)
    layer.lora_b_stacked[1][1, 0, :, :4].copy_(b)
    x, y = torch.randn(5, SIZE), torch.zeros(5, 32)
    add_product(y, x, packed, AdapterRows.from_index(torch.tensor([1] * 5)))
    assert not y[:, :24].any()
    torch.testing.assert_close(y[:, 24:], x @ a.T @ b.T)


def test_rows_of_another_batch_are_rejected() -> None:
    layer = make_layer(8, (24,), torch.float32)
    pack(layer)
    batch = AdapterRows.from_index(torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="3 rows with the adapters of 2"):
        add_product(torch.zeros(3, 24), torch.zeros(3, SIZE), layer.lora_a_stacked.packed, batch)


def test_one_index_holds_for_all_rows() -> None:
    layer = make_layer(8, (24,), torch.float32)
    pack(layer)
    x, y = torch.randn(5, SIZE), torch.zeros(5, 24)
    add_product(y, x, layer.lora_a_stacked.packed, AdapterRows.from_index(torch.tensor([2])))
    assert y.any()
