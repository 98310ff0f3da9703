"""Changes of a configuration that make its memory plan fit, each tried before it is advised."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy, resource_problems
from pettingllms.policies import plan_models
from pettingllms.preflight.estimates import ProcessEstimate
from pettingllms.preflight.learner_memory import uses_checkpointing
from pettingllms.preflight.sizing import MemoryPlan, plan_memory

MIN_BATCH_TOKENS = 1024
"""Smaller passes keep no GPU busy, so they are not advised."""
EIGHT_BIT = {"adamw": ["adamw_8bit"], "adamw_8bit": [], "adafactor": []}
"""Optimizers to try instead of the given one."""
NARROW = {"float32": ["bfloat16"], "bfloat16": [], "auto": []}
"""Dtypes to try instead of the given one; `auto` is bfloat16 on GPUs."""


@dataclass(frozen=True, slots=True)
class Change:
    """Overrides of configuration keys, and what they do to the plan."""

    overrides: tuple[str, ...]
    edit: Callable[[RunConfig], RunConfig]
    is_exact: bool = True
    """Whether training computes the same, up to rounding."""
    num_bytes: float = 0.0
    """Bytes per GPU that it saves, over the processes that do not fit."""
    fits: bool = False
    """Whether the plan fits with this change alone."""

    def describe(self) -> str:
        """The overrides as they are written on a command line."""
        return " ".join(self.overrides)


Option = Sequence[Change]
"""Changes of the same keys, the mildest first."""


def advise(plan: MemoryPlan) -> list[Change]:
    """Changes that help a plan that does not fit, the most effective first. Of a number, the
    mildest value that suffices, or else the strongest."""
    tried = [_tried(plan, _best(plan, [], option)) for option in _options(plan)]
    found = [change for change in tried if change.num_bytes > 0 or change.fits]
    return sorted(found, key=lambda change: change.num_bytes, reverse=True)


def find_fix(plan: MemoryPlan) -> list[Change] | None:
    """Changes that together make the plan fit; None if none are found. Changes that leave training
    as it is are tried first."""
    options = _options(plan)
    exact = [option for option in options if option[0].is_exact]
    return _fitting(plan, exact) or _fitting(plan, options)


def _fitting(plan: MemoryPlan, options: Sequence[Option]) -> list[Change] | None:
    """Take the option that helps most until the plan fits, then only what is needed of each."""
    taken: list[tuple[Change, Option]] = []
    shortage = plan.shortage
    while shortage:
        picked = [change for change, _ in taken]
        left = [option for option in options if all(option is not other for _, other in taken)]
        tried = [(_best(plan, picked, option), option) for option in left]
        shortages = [_with(plan, [*picked, change]).shortage for change, _ in tried]
        least = min(shortages, default=shortage)
        if least >= shortage:
            return None
        taken.append(tried[shortages.index(least)])
        shortage = least
    return _needed(plan, taken)


def _needed(plan: MemoryPlan, taken: Sequence[tuple[Change, Option]]) -> list[Change]:
    """Without changes that are not needed, and with the mildest value of the others."""
    changes = [change for change, _ in taken]
    for change, option in taken:
        rest = [other for other in changes if other is not change]
        is_needed = not _with(plan, rest).fits
        changes = [*rest, _best(plan, rest, option)] if is_needed else rest
    return changes


def _best(plan: MemoryPlan, others: Sequence[Change], option: Option) -> Change:
    """The mildest change with which the plan fits, or else the one that leaves least to save."""
    shortages = [_with(plan, [*others, change]).shortage for change in option]
    return option[shortages.index(min(shortages))]


def _tried(plan: MemoryPlan, change: Change) -> Change:
    changed = _with(plan, [change])
    kinds = {_kind(process) for process in plan.processes if plan.overflow(process)}
    saved = sum(_most(plan, kind) - _most(changed, kind) for kind in kinds)
    return replace(change, num_bytes=saved, fits=changed.fits)


def _with(plan: MemoryPlan, changes: Iterable[Change]) -> MemoryPlan:
    config = plan.config
    for change in changes:
        config = change.edit(config)
    return plan_memory(config, plan.hardware, plan.sizes)


def _most(plan: MemoryPlan, kind: str) -> float:
    """Bytes per GPU of the largest process of a kind."""
    return max((p.num_bytes for p in plan.processes if _kind(p) == kind), default=0.0)


def _kind(process: ProcessEstimate) -> str:
    """Engine, learner or critic. Policies that become adapters share one learner."""
    return process.name.partition(" of ")[0].partition(":")[0]


def _options(plan: MemoryPlan) -> list[Option]:
    """What can be changed, without empty options."""
    learner, inference = plan.config.learner, plan.config.inference
    ranks, replicas = learner.num_ranks, inference.num_replicas
    checkpointing = uses_checkpointing(plan.config, "gpu")
    is_short = plan.num_gpus > plan.hardware.num_gpus
    colocated = plan.config.cluster.placement == "colocated"
    numbers = _numbers(plan, ranks, is_short)
    lower = [share for share in (0.6, 0.5, 0.4) if share < inference.gpu_memory_utilization]
    higher = [share for share in (0.9,) if share > inference.gpu_memory_utilization]
    found = [
        _values("learner", "activation_checkpointing", [] if checkpointing else [True]),
        _shared(plan, numbers) if colocated else _values("learner", "num_ranks", numbers),
        _values("learner", "max_batch_tokens", _fewer_tokens(plan.config)),
        list(_adapters(plan.config)),
        _values("learner", "base_bits", _fewer_bits(plan.config), is_exact=False),
        _values("learner", "optimizer", EIGHT_BIT[learner.optimizer], is_exact=False),
        _values("learner", "offload_optimizer", [] if learner.offload_optimizer else [True]),
        _values("learner", "dtype", NARROW[learner.dtype], is_exact=False),
        _values("inference", "dtype", NARROW[inference.dtype], is_exact=False),
        _values("inference", "tensor_parallel", [] if colocated else _wider(plan)),
        _values(
            "inference", "num_replicas", _fewer(replicas) if is_short and not colocated else ()
        ),
        _values("inference", "gpu_memory_utilization", lower if colocated else higher),
    ]
    return [option for option in found if option]


def _numbers(plan: MemoryPlan, ranks: int, is_short: bool) -> range:
    """Fewer ranks if there are too few GPUs, else more."""
    if not plan.config.trained_policies():
        return range(0)
    return _fewer(ranks) if is_short else range(ranks + 1, plan.hardware.num_gpus + 1)


def _fewer(count: int) -> range:
    return range(count - 1, 0, -1)


def _shared(plan: MemoryPlan, numbers: Iterable[int]) -> Option:
    """Ranks and as many GPUs of engines, which colocated models share."""
    width = plan.config.inference.tensor_parallel
    found = []
    for ranks in (number for number in numbers if number % width == 0):
        first = _set("learner", "num_ranks", ranks, is_exact=True)
        second = _set("inference", "num_replicas", ranks // width, is_exact=True)
        overrides = (*first.overrides, *second.overrides)
        found.append(Change(overrides, _in_turn(first.edit, second.edit)))
    return found


def _in_turn(
    first: Callable[[RunConfig], RunConfig], second: Callable[[RunConfig], RunConfig]
) -> Callable[[RunConfig], RunConfig]:
    return lambda config: second(first(config))


def _fewer_bits(config: RunConfig) -> list[int]:
    """Bits per weight of frozen bases, if all policies that learn are adapters."""
    groups = [group for group in plan_models(config) if group.trained]
    if not groups or any(group.full for group in groups):
        return []
    return [bits for bits in (8, 4) if bits < (config.learner.base_bits or 16)]


def _fewer_tokens(config: RunConfig) -> list[int]:
    """Halves of the tokens per pass, as long as the longest sequence fits into one."""
    values, tokens = [], config.learner.max_batch_tokens // 2
    while tokens >= max(MIN_BATCH_TOKENS, config.inference.max_model_len):
        values.append(tokens)
        tokens //= 2
    return values


def _wider(plan: MemoryPlan) -> list[int]:
    """GPUs per engine that divide the attention heads of all models."""
    now, most = plan.config.inference.tensor_parallel, plan.hardware.gpus_per_node
    heads = [size.num_heads for size in plan.sizes.values()]
    return [n for n in (2, 4, 8) if now < n <= most and not any(count % n for count in heads)]


def _values(section: str, key: str, values: Iterable[Any], is_exact: bool = True) -> Option:
    return [_set(section, key, value, is_exact) for value in values]


def _set(section: str, key: str, value: Any, is_exact: bool) -> Change:
    text = str(value).lower() if isinstance(value, bool) else str(value)

    def edit(config: RunConfig) -> RunConfig:
        changed = getattr(config, section).model_copy(update={key: value})
        return config.model_copy(update={section: changed})

    return Change((f"{section}.{key}={text}",), edit, is_exact)


def _adapters(config: RunConfig) -> Iterator[Change]:
    """All policies that are trained in full as LoRA adapters, which vLLM serves in bfloat16."""
    full = {group.full[0] for group in plan_models(config) if group.full}
    served = _values("inference", "dtype", NARROW[config.inference.dtype])

    def edit(config: RunConfig) -> RunConfig:
        policies = {
            name: LoraPolicy(model=policy.model, resources=policy.resources)
            if name in full and isinstance(policy, FullPolicy)
            else policy
            for name, policy in config.policies.items()
        }
        config = config.model_copy(update={"policies": policies})
        return served[0].edit(config) if served else config

    # Adapters share their base, so resources that differ between them would be an error.
    if full and not any(resource_problems(edit(config).policies)):
        names = tuple(f"policies.{name}.kind=lora" for name in sorted(full))
        more = served[0].overrides if served else ()
        yield Change((*names, *more), edit, is_exact=False)
