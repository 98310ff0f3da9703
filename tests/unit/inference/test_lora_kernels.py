"""Grouped LoRA kernels against one product per row."""

import pytest

torch = pytest.importorskip("torch")

from pettingllms.inference.lora_kernels import expand, expand_slice, shrink

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
INDICES = {
    "base and adapters": [-1, 0, 2, -1, 2, 0, 1],
    "one adapter": [1] * 7,
    "base alone": [-1] * 7,
    "base and last slot": [-1, 2, 2, -1, -1, 2, -1],
}


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


@pytest.fixture(params=INDICES)
def index(request: pytest.FixtureRequest) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.tensor(INDICES[request.param])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_shrink_multiplies_each_row_by_its_own_adapter(
    index: torch.Tensor, dtype: torch.dtype
) -> None:
    inputs, weights = normal(7, 32, dtype=dtype), normal(3, 1, 4, 32, dtype=dtype)
    output = torch.full((7, 6), 5.0)
    shrink(inputs, weights, output, index, 0.5)
    for row, slot in enumerate(index.tolist()):
        expected = torch.full((6,), 5.0)
        if slot >= 0:
            expected[:4] = 0.5 * weights[slot, 0].float() @ inputs[row].float()
        torch.testing.assert_close(output[row], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("add", [True, False])
def test_expand_changes_the_rows_of_adapters_alone(
    index: torch.Tensor, dtype: torch.dtype, add: bool
) -> None:
    inputs, weights = normal(7, 4), normal(3, 1, 8, 4, dtype=dtype)
    before = normal(7, 20, dtype=dtype)
    whole, part = before[:, :6].clone(), before.clone()
    expand(inputs, weights, whole, index, add)  # an output narrower than the adapter
    expand_slice(inputs, weights, part, index, 3, 8, add)
    for row, slot in enumerate(index.tolist()):
        expected = before[row].float()
        if slot < 0:
            assert torch.equal(whole[row], before[row, :6])
            assert torch.equal(part[row], before[row])
            continue
        product = weights[slot, 0].float() @ inputs[row]
        close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
        torch.testing.assert_close(whole[row].float(), add * expected[:6] + product[:6], **close)
        expected[3:11] = add * expected[3:11] + product
        torch.testing.assert_close(part[row].float(), expected, **close)


def test_indices_of_other_requests_are_ignored_by_an_output_layer_without_adapters() -> None:
    """As vLLM passes them when it reads the log-probs of a prompt in a batch of three."""
    inputs, output, index = normal(7, 4), normal(7, 8), torch.tensor([-1, 0, 1])
    before = output.clone()
    expand(inputs, torch.zeros(3, 1, 8, 4), output, index)
    assert torch.equal(output, before)
    with pytest.raises(RuntimeError, match="adapter of the output layer"):
        expand(inputs, normal(3, 1, 8, 4), output, index)


def test_one_index_holds_for_all_rows() -> None:
    inputs, weights, output = normal(7, 4), normal(3, 1, 8, 4), torch.zeros(7, 8)
    expand(inputs, weights, output, torch.tensor([2]))
    torch.testing.assert_close(output, inputs @ weights[2, 0].T)
