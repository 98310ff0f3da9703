"""Device placement, FSDP2 sharding, and collectives over ranks, for learners and critics."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from pettingllms.learners.batches import Item
from pettingllms.learners.value_head import ValueHead

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
RowT = TypeVar("RowT")


class Pending(Protocol):
    """Weights that are read once their model is sharded."""

    def read(self, model: nn.Module, device: torch.device) -> None:
        """Allocate and fill the shards."""
        ...


def place_model(
    model: nn.Module,
    layers: Sequence[nn.Module],
    device: torch.device,
    dtype: torch.dtype,
    pending: Pending | None = None,
) -> None:
    """Move a model to its device, or shard it over the ranks with FSDP2, layer by layer.

    Value heads always compute in float32, so they are sharded separately.
    """
    if num_ranks() == 1:
        if pending is not None:
            pending.read(model, device)
        model.to(device)
        return
    low = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    exact = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    heads = [module for module in model.modules() if isinstance(module, ValueHead)]
    for module in [*heads, *layers, model]:
        fully_shard(module, mp_policy=exact if isinstance(module, ValueHead) else low)
        assert isinstance(module, FSDPModule)  # noqa: S101 - fully_shard changes the class
        module.set_gradient_divide_factor(1.0)  # sum gradients over ranks
        module.set_reduce_scatter_unused_params(True)  # one rank may read images, another none
        module.set_force_sum_reduction_for_comms(True)  # gloo supports only sums
    if pending is not None:
        pending.read(model, device)


def reshard(model: nn.Module) -> None:
    """Reshard after a pass without gradients, which leaves the root gathered in the compute dtype;
    weights are read from and written to the shards."""
    if isinstance(model, FSDPModule):
        model.reshard()


def arithmetic(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Autocast to the compute dtype; FSDP casts by itself."""
    if dtype == torch.float32 or num_ranks() > 1:
        return nullcontext()
    return torch.autocast(device.type, dtype)


def release_memory(device: torch.device) -> None:
    """Release cached device memory: an engine on the same device wakes up next."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def trim_heap() -> None:
    """Return freed heap memory to the system before state is copied: about 1 GB after a batch of a
    model of 135M parameters. The next batch has page faults."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in glibc
    if trim:
        trim(0)


@contextmanager
def trimmed_layers(model: nn.Module) -> Iterator[None]:
    """Return the memory of each gathered layer to the system once the layer is computed.

    The C library keeps freed memory: else a pass of a model of 36 layers over two ranks adds 1.3
    times the shard. For passes of a few tokens; it would slow down others. No effect on GPUs."""
    layers = [m for m in model.modules() if isinstance(m, FSDPModule)]
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    handles = [layer.register_forward_hook(lambda *_: trim_heap()) for layer in layers if on_cpu]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def num_ranks() -> int:
    """Number of processes that a model is sharded over."""
    return dist.get_world_size() if dist.is_initialized() else 1


def own_rank() -> int:
    """The rank of this process."""
    return dist.get_rank() if dist.is_initialized() else 0


def gather_rows(items: Sequence[Item], found: dict[int, RowT]) -> list[RowT]:
    """Gather the rows of all ranks, which are keyed by item id, in the order of the items."""
    if num_ranks() == 1:
        return [found[id(item)] for item in items]
    places = {id(item): at for at, item in enumerate(items)}
    shares: list[Any] = [None] * num_ranks()
    dist.all_gather_object(shares, {places[key]: row for key, row in found.items()})
    merged = {at: row for share in shares for at, row in share.items()}
    return [merged[at] for at in range(len(items))]


def reduce_metrics(
    loss: Tensor, sums: dict[str, Tensor], maxima: Sequence[str], device: torch.device
) -> tuple[float, dict[str, float]]:
    """Reduce the loss and metrics over ranks: maxima by maximum, all others by sum."""
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
