"""The bytes of the tensors that a computation creates, whether real or fake."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorBytes(TorchDispatchMode):
    """Counts storages created while it is active: the largest, those alive, and their peak.

    Tensors that exist before, such as weights and inputs, are not counted unless an operation
    returns them; pass them as `known`.
    """

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()
        self.largest = self.alive = self.peak = 0
        self._seen = {id(tensor.untyped_storage()): tensor for tensor in known}
        self._counted: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count the storages of what it returns."""
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key in self._seen or key in self._counted:
            return
        size = storage.nbytes()
        self._counted[key] = weakref.finalize(storage, self._free, key, size)
        self.largest = max(self.largest, size)
        self.alive += size
        self.peak = max(self.peak, self.alive)

    def _free(self, key: int, size: int) -> None:
        del self._counted[key]
        self.alive -= size
