"""Loads a model that is sharded over ranks: each rank reads only its shard.

The model is created without memory for its parameters, on the meta device. Adapters are added and
FSDP shards it; then every rank reads its rows from the files of the model. Never run on a GPU.
"""

import json
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pettingllms.errors import LearnerError
from pettingllms.learners.policy_model import auto_class, load_lm
from pettingllms.learners.quantized_linear import QuantizedLinear, Read, copy_elements
from pettingllms.learners.sharding import num_ranks, own_rank
from pettingllms.learners.tensor_files import TensorFiles, local_part
from pettingllms.learners.weight_plan import NoPlan, Step, plan_of

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


class PendingWeights:
    """The weights of a model on the meta device, which are read once it is sharded."""

    def __init__(self, lm: Any, plan: Iterable[Step], files: TensorFiles) -> None:
        self._lm = lm
        self._dtype = lm.dtype
        self._plan = list(plan)
        self._files = files
        # Adapters and FSDP rename parameters and replace them, but the modules stay.
        self._owners: dict[str, list[tuple[nn.Module, str]]] = {}
        tied: dict[int, list[tuple[nn.Module, str]]] = {}
        for prefix, module in lm.named_modules(remove_duplicate=False):
            for name, tensor in (*_parameters(module), *module.named_buffers(recurse=False)):
                owners = tied.setdefault(id(tensor), [])
                owners.append((module, name))
                self._owners[f"{prefix}.{name}" if prefix else name] = owners

    def read(self, model: nn.Module, device: torch.device) -> None:
        """Allocate the shards of a model that contains the language model, and fill them."""
        _allocate(model, device)
        used = set(model.modules())
        for step in self._plan:
            if step.converter is None:
                self._fill(step.first, used, partial(self._files.read_elements, step.keys[0][0]))
            else:
                self._convert(step, used)

    def _fill(self, name: str, used: set[nn.Module], read: Read) -> None:
        """Fill this rank's part of a parameter or buffer, if a module of the model has it. A
        critic, for example, has no output layer."""
        owners = ((module, own) for module, own in self._owners[name] if module in used)
        module, own = next(owners, (None, ""))
        if isinstance(module, QuantizedLinear) and own == "weight":
            module.fill(read)
        elif module is not None:
            local, start = local_part(getattr(module, own))
            read(start, local)

    @torch.no_grad()
    def _convert(self, step: Step, used: set[nn.Module]) -> None:
        """Read whole tensors, such as the experts of a layer, and keep this rank's rows."""
        tensors = [self._files.read(key).to(self._dtype) for key, _ in step.keys]
        for name, made in step.convert(self._lm, tensors).items():
            self._fill(name, used, partial(copy_elements, made))


def open_lm(
    folder: Path, dtype: torch.dtype, quantizes: bool = False
) -> tuple[Any, PendingWeights | None]:
    """A language model; with several ranks on the meta device, with its pending weights.
    `quantizes`: the same with one rank, so that no weights exist before they are quantized.

    A model that cannot be loaded in shards is loaded whole by every rank, with a warning."""
    if num_ranks() == 1 and not quantizes:
        return load_lm(folder, dtype), None
    try:
        return _on_meta(folder, dtype)
    except NoPlan as reason:
        if own_rank() == 0 and num_ranks() > 1:
            warnings.warn(
                f"every rank loads the whole model {folder}, which takes num_ranks times its "
                f"memory, because it cannot be loaded in shards: {reason}",
                stacklevel=2,
            )
        return load_lm(folder, dtype), None


def _on_meta(folder: Path, dtype: torch.dtype) -> tuple[Any, PendingWeights]:
    from transformers import AutoConfig

    try:
        from accelerate import init_empty_weights  # type: ignore[import-untyped]
    except ImportError as error:
        raise LearnerError(
            f"a learner with several ranks needs accelerate, which failed to import: {error}; "
            "pip install accelerate, or set learner.num_ranks = 1"
        ) from error

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if getattr(config, "quantization_config", None):
        raise NoPlan("it is quantized")
    with init_empty_weights(include_buffers=False):
        lm = auto_class(folder).from_config(config, dtype=dtype, attn_implementation="sdpa")
    lm.tie_weights()
    lm.eval()  # as in `load_lm`
    if lm._get_dtype_plan(dtype):  # noqa: SLF001 - as `from_pretrained` does
        raise NoPlan(f"some of its parameters stay in float32 if the others are {dtype}")
    files = TensorFiles(_paths(folder))
    return lm, PendingWeights(lm, plan_of(lm, files), files)


def _paths(folder: Path) -> list[Path]:
    """The weight files of a model."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise NoPlan(f"{folder} has neither {SINGLE} nor {INDEX}")
    index = json.loads((folder / INDEX).read_bytes())
    return [folder / name for name in sorted(set(index["weight_map"].values()))]


def _allocate(model: nn.Module, device: torch.device) -> None:
    """Allocate tensors on the meta device. Not by `to_empty`, which also empties buffers that no
    file has, such as rotary frequencies."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in _parameters(module):
            owners.setdefault(id(parameter), []).append((module, name))
    apply: Any = model._apply  # noqa: SLF001 - as `to_empty` does
    apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor)
    for (first, name), *others in owners.values():
        for module, other in others:  # PyTorch allocates tied parameters separately
            setattr(module, other, getattr(first, name))


def _parameters(module: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    """The parameters of a module without its submodules."""
    return module.named_parameters(recurse=False, remove_duplicate=False)
