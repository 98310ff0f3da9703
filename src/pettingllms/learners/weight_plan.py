"""Which tensors of a model folder fill which parameters, by the rules of Transformers.

Names in files differ from names in the model: Transformers renames them, and stacks experts that
are stored one by one. The plan applies its own rules to names and shapes, without any data.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pettingllms.learners.tensor_files import TensorFiles


class NoPlan(Exception):  # noqa: N818 - the reason for another way to load, not an error
    """Why a model cannot be loaded in shards."""


@dataclass(slots=True)
class Step:
    """Tensors of the files that one or several parameters are made of."""

    first: str
    """Name of the first parameter."""
    keys: list[tuple[str, str]] = field(default_factory=list)
    """Names in the files, each with the pattern of the converter that it matched."""
    converter: Any = None
    """Transformers' converter; None if the tensor is used as it is."""

    def convert(self, lm: Any, tensors: Iterable[Tensor]) -> dict[str, Tensor]:
        """The parameters by name, given the tensors of the files in order."""
        from transformers.core_model_loading import SkipParameters
        from transformers.utils.loading_report import LoadStateDictInfo

        converter = deepcopy(self.converter)
        for (key, pattern), tensor in zip(self.keys, tensors, strict=True):
            converter.add_tensor(self.first, key, pattern, tensor)
        info = LoadStateDictInfo(set(), set(), set(), [], {}, set())
        try:
            made = converter.convert(self.first, model=lm, config=lm.config, loading_info=info)
        except SkipParameters:
            raise NoPlan(f"{self.first} cannot be converted: {info.conversion_errors}") from None
        return {n: t[0] if isinstance(t, list) else t for n, t in made.items()}


def plan_of(lm: Any, files: TensorFiles) -> list[Step]:
    """The steps that fill all parameters and saved buffers of a model on the meta device.

    Raises NoPlan if parameters are missing or have other shapes."""
    steps = _steps(lm, files)
    named = _named(lm)
    covered: dict[int, str] = {}
    plan = []
    for step in steps:
        made = _shapes(lm, step, files)
        for name, shape in made.items():
            if name not in named:
                raise NoPlan(f"the model has no {name}")
            if shape != tuple(named[name].shape):
                raise NoPlan(f"{name} has shape {shape}, not {tuple(named[name].shape)}")
        ties = {name: covered[id(named[name])] for name in made if id(named[name]) in covered}
        if ties:
            _check_tied(steps, ties, files)
            continue
        covered |= {id(named[name]): step.first for name in made}
        plan.append(step)
    missing = [name for name, tensor in named.items() if id(tensor) not in covered]
    if missing:
        raise NoPlan(f"the files have no {', '.join(missing[:3])}")
    return plan


def _steps(lm: Any, files: TensorFiles) -> list[Step]:
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    rules = get_model_conversion_mapping(lm)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    by_pattern = {pattern: rule for rule in converters for pattern in rule.source_patterns}
    prefix, state = lm.base_model_prefix, lm.state_dict()
    steps: dict[str, Step] = {}
    for key in sorted(files.keys(), key=dot_natural_key):
        name, pattern = rename_source_key(key, renamings, converters, prefix, state)
        if name not in state and key in state:
            name, pattern = rename_source_key(key, [], [], prefix, state)
        if name not in state:
            continue  # such as heads of other tasks
        converter = by_pattern[pattern] if pattern else None
        step = steps.setdefault(name, Step(name, converter=converter))
        step.keys.append((key, pattern or key))
        if step.converter is None and len(step.keys) > 1:
            raise NoPlan(f"several tensors are called {name}")
    return list(steps.values())


def _shapes(lm: Any, step: Step, files: TensorFiles) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters that a step makes."""
    shapes = [files.entries[key].shape for key, _ in step.keys]
    if step.converter is None:
        return {step.first: shapes[0]}
    made = step.convert(lm, [torch.empty(shape, device="meta") for shape in shapes])
    return {name: tuple(tensor.shape) for name, tensor in made.items()}


def _named(lm: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name; tied ones under each of their names."""
    saved = lm.state_dict().keys()
    named: dict[str, Tensor] = dict(lm.named_parameters(remove_duplicate=False))
    named |= dict(lm.named_buffers(remove_duplicate=False))
    return {name: tensor for name, tensor in named.items() if name in saved}


def _check_tied(steps: Iterable[Step], ties: dict[str, str], files: TensorFiles) -> None:
    """Two tensors of the files fill the same parameter, so they must be equal."""
    by_name = {step.first: step for step in steps}
    for name, other in ties.items():
        pair = [by_name.get(name), by_name.get(other)]
        keys = [step.keys[0][0] for step in pair if step and step.converter is None]
        if len(keys) < 2 or not files.same_bits(*keys):
            raise NoPlan(f"{name} and {other} are tied, but the files have different values")
