"""Fake models: shapes of real sizes without memory, and the bytes that a pass would need."""

import functools
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint


class Live(TorchDispatchMode):
    """Counts the bytes of storages that operators create, while they are alive."""

    def __init__(self, ignored: set[int]) -> None:
        super().__init__()
        self.num_bytes = self.peak = 0
        self._known = dict.fromkeys(ignored, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known[key] = size
            self.num_bytes += size
            self.peak = max(self.peak, self.num_bytes)
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.pop(key, None)
        self.num_bytes -= size


def decoder_bytes(
    config: dict[str, Any], num_tokens: int, rank: int, dtype: torch.dtype, checkpointing: bool
) -> tuple[int, int]:
    """Bytes that autograd saves in a decoder's forward pass, by unique storages, and the largest
    number of bytes that are alive in forward and backward pass. Parameters are not counted."""
    decoder = _decoder(config, rank)
    with FakeTensorMode(allow_non_fake_inputs=True):
        own = _materialize(decoder, dtype)
        if checkpointing:
            for layer in decoder.layers:
                layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        saved: dict[int, torch.UntypedStorage] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                saved[storage._cdata] = storage  # kept, so that no other takes its address
            return tensor

        ids = torch.zeros(1, num_tokens, dtype=torch.long)
        live = Live(own)
        with live:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                # With fake tensors Transformers would add a mask that real ones do not get.
                mask = {"full_attention": None}
                out = decoder(input_ids=ids, attention_mask=mask, use_cache=False)
            num_saved = sum(storage.nbytes() for storage in saved.values())
            saved.clear()
            torch.autograd.backward(out.last_hidden_state.sum())
        return num_saved, live.peak


def _decoder(config: dict[str, Any], rank: int) -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    with torch.device("meta"):
        lm = Qwen3ForCausalLM(Qwen3Config(**config, attn_implementation="sdpa"))
        lm.eval()
        if rank:
            get_peft_model(lm, LoraConfig(r=rank, target_modules="all-linear"))
    return lm.model


def _materialize(decoder: nn.Module, dtype: torch.dtype) -> set[int]:
    """Replace meta tensors by fake ones on the CPU, in one dtype as FSDP casts them."""
    for module in decoder.modules():
        for name, old in module._parameters.items():
            if old is not None:
                new = torch.empty(old.shape, dtype=dtype)
                module._parameters[name] = nn.Parameter(new, requires_grad=old.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape)
    return {parameter.untyped_storage()._cdata for parameter in decoder.parameters()}
