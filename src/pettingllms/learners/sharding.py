"""What every model that is trained here has in common: where it lies, and how ranks add up."""

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from pettingllms.learners.batches import Item
from pettingllms.learners.value_head import ValueHead

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
RowT = TypeVar("RowT")


def place(
    model: nn.Module, layers: Sequence[nn.Module], device: torch.device, dtype: torch.dtype
) -> None:
    """Put a model on its device, or shard it over the ranks, layer by layer.

    Value heads compute in float32 whatever the rest does, so they are sharded by themselves.
    """
    if num_ranks() == 1:
        model.to(device)
        return
    low = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    exact = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    heads = [module for module in model.modules() if isinstance(module, ValueHead)]
    for module in [*heads, *layers, model]:
        fully_shard(module, mp_policy=exact if isinstance(module, ValueHead) else low)
        assert isinstance(module, FSDPModule)  # noqa: S101 - what fully_shard makes of it
        module.set_gradient_divide_factor(1.0)  # gradients of ranks add up
        module.set_reduce_scatter_unused_params(True)  # one rank may read images, another none
        module.set_force_sum_reduction_for_comms(True)  # gloo knows no other way to do so


def reshard(model: nn.Module) -> None:
    """After a pass without gradients FSDP leaves the root whole, in the type of the arithmetic;
    weights are read from and written to the shards."""
    if isinstance(model, FSDPModule):
        model.reshard()


def arithmetic(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[Any]:
    """The type that a pass computes in."""
    if dtype == torch.float32 or num_ranks() > 1:
        return nullcontext()
    return torch.autocast(device.type, dtype)


def give_back(device: torch.device) -> None:
    """Return what a batch needed and needs no more: an engine on the same device wakes up next."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def trim_heap() -> None:
    """Return what was freed and the C library keeps to itself: a gigabyte after a batch of a model
    of 135M parameters, when its state is about to be copied. Costs the next batch page faults."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    if trim:
        trim(0)


def num_ranks() -> int:
    """Processes that a model is sharded over."""
    return dist.get_world_size() if dist.is_initialized() else 1


def own_rank() -> int:
    """Which of them this is."""
    return dist.get_rank() if dist.is_initialized() else 0


def of_all_ranks(items: Sequence[Item], found: dict[int, RowT]) -> list[RowT]:
    """What ranks found for items, by their ids, in the order of the items."""
    if num_ranks() == 1:
        return [found[id(item)] for item in items]
    places = {id(item): at for at, item in enumerate(items)}
    shares: list[Any] = [None] * num_ranks()
    dist.all_gather_object(shares, {places[key]: row for key, row in found.items()})
    merged = {at: row for share in shares for at, row in share.items()}
    return [merged[at] for at in range(len(items))]


def over_ranks(
    loss: Tensor, sums: dict[str, Tensor], maxima: Sequence[str], device: torch.device
) -> tuple[float, dict[str, float]]:
    """The loss and the sums of all ranks added up; of what is no sum, the largest."""
    if num_ranks() > 1:
        added = torch.stack([loss, *(v for n, v in sums.items() if n not in maxima)])
        largest = torch.stack([v for n, v in sums.items() if n in maxima])
        added, largest = added.to(device), largest.to(device)
        dist.all_reduce(added, op=dist.ReduceOp.SUM)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        loss, rest = added[0], iter(added[1:])
        peaks = iter(largest)
        sums = {n: next(peaks) if n in maxima else next(rest) for n in sums}
    return float(loss), {name: float(value) for name, value in sums.items()}
