"""Tensors as bytes and back."""

import torch
from safetensors.torch import load, save

from pettingllms.learners.weights import DTYPE_NAMES, from_bytes, to_bytes

TENSORS = {
    "scalar": torch.tensor(3),
    "odd": torch.arange(3, dtype=torch.uint8),
    "empty": torch.zeros(0, 4),
    "turned": torch.arange(6.0).reshape(2, 3).T,
} | {f"of {dtype}": torch.ones(3, dtype=dtype) for dtype in DTYPE_NAMES}


def test_what_is_written_is_what_the_library_reads() -> None:
    read = load(to_bytes(TENSORS))
    assert read.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


def test_what_the_library_writes_is_read() -> None:
    plain = {name: tensor.contiguous() for name, tensor in TENSORS.items()}
    read = from_bytes(save(plain))
    assert all(torch.equal(read[name], tensor) for name, tensor in plain.items())


def test_order_of_names_does_not_change_the_file() -> None:
    assert to_bytes(TENSORS) == to_bytes(dict(reversed(TENSORS.items())))
