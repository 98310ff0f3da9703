"""Optimizer state in host memory between updates.

Device memory is then free for activations while gradients are computed. Tensors stay the same
objects, so that optimizers and FSDP2 keep their references: only their storage is emptied and
filled again. Never run on a GPU; tests run the same code with both copies in host memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from pettingllms.learners.adafactor import local


class HostState:
    """Moves the state of an optimizer to the host and back."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer = optimizer
        self.device = device
        self._buffers: dict[int, Tensor] = {}  # by the id of a tensor that the optimizer holds

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Have the state on the device, and free it there at the end."""
        self._fill()
        try:
            yield
        finally:
            self._free()

    @torch.no_grad()
    def _fill(self) -> None:
        for tensor in self._tensors():
            buffer = self._buffers.get(id(tensor))
            if buffer is not None:
                tensor.untyped_storage().resize_(buffer.numel() * buffer.element_size())
                tensor.copy_(buffer)

    @torch.no_grad()
    def _free(self) -> None:
        """Copy the state to the host, into the same buffers each time."""
        before, self._buffers = self._buffers, {}
        for tensor in self._tensors():
            buffer = before.get(id(tensor))
            if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
                pinned = self.device.type == "cuda"
                buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
            self._buffers[id(tensor)] = buffer.copy_(tensor)
            tensor.untyped_storage().resize_(0)

    def _tensors(self) -> list[Tensor]:
        """The plain tensors on the device that the state consists of; call it without gradients,
        which would make a new view of a sharded tensor each time."""
        states = self._optimizer.state.values()
        given = (value for state in states for value in state.values())
        parts = (part for one in given for part in _parts(one))
        return [part for part in parts if part.device.type == self.device.type]


def _parts(tensor: Tensor) -> list[Tensor]:
    """The plain tensors of this rank that a tensor consists of, such as codes and scales."""
    own: Any = local(tensor)
    if not is_traceable_wrapper_subclass(own):
        return [own]
    names, _ = own.__tensor_flatten__()
    return [part for name in names for part in _parts(getattr(own, name))]
