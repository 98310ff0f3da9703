"""Random plans of process groups, and an oracle that packs them by another method."""

import random
from collections import Counter
from collections.abc import Iterable
from functools import cache

from pettingllms.config import RunConfig, parse_config
from pettingllms.config.policies import (
    EngineResources,
    FrozenPolicy,
    FullPolicy,
    PolicyResources,
)
from pettingllms.policies import ModelGroup
from pettingllms.policies.layout import ProcessGroup

NUM_NODES = GPUS_PER_NODE = 8


def random_plan(seed: int) -> tuple[RunConfig, list[ModelGroup]]:
    """A configuration and models with random replicas, widths and ranks, for about 64 GPUs."""
    rng = random.Random(seed)
    colocated = rng.random() < 0.25
    target, num_gpus = rng.randint(20, 66), 0
    groups: list[ModelGroup] = []
    while num_gpus < target:
        number = len(groups)
        name = f"p{number}"
        width = rng.choice([1, 2, 3, 3, 4, 5, 5, 8])
        replicas = rng.randint(1, 3)
        ranks = rng.choice([1, 2, 3, 4, 4, 5, 6, 6, 8, 12])
        if colocated:
            ranks = replicas * width
        num_gpus += ranks if colocated else replicas * width + ranks
        resources = PolicyResources(num_replicas=replicas, tensor_parallel=width, num_ranks=ranks)
        if rng.random() < 0.2:
            own = EngineResources(num_replicas=replicas, tensor_parallel=width)
            policy = FrozenPolicy(model="m", resources=own)
            groups.append(ModelGroup(f"base:{number}", "m", frozen={name: policy}))
        else:
            full = FullPolicy(model="m", resources=resources)
            groups.append(ModelGroup(f"full:{name}", "m", full=(name, full)))
    return config_of("colocated" if colocated else "separate"), groups


def config_of(placement: str = "separate", **sections: object) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "lora", "model": "m"}},
            "cluster": {"placement": placement},
            **sections,
        }
    )


def can_pack(sizes: Iterable[int], num_bins: int = NUM_NODES, room: int = GPUS_PER_NODE) -> bool:
    """Whether items fit into equal bins, by filling one bin after another in all ways."""
    counts = Counter(sizes)
    if any(size > room for size in counts):
        return False
    return _fills(tuple(sorted(counts.items(), reverse=True)), num_bins, room)


@cache
def _fills(counts: tuple[tuple[int, int], ...], num_bins: int, room: int) -> bool:
    left = dict(counts)
    if sum(size * num for size, num in counts) > num_bins * room:
        return False
    if not left:
        return True
    largest = max(left)
    for bin_ in _bins(counts, room):
        if largest not in bin_:  # some bin holds the largest item: let it be this one
            continue
        after = Counter(left)
        after.subtract(Counter(bin_))
        rest = tuple(sorted(((s, n) for s, n in after.items() if n), reverse=True))
        if _fills(rest, num_bins - 1, room):
            return True
    return False


@cache
def _bins(counts: tuple[tuple[int, int], ...], room: int) -> tuple[tuple[int, ...], ...]:
    """Ways of filling a bin."""
    if not counts:
        return ((),)
    (size, num), *others = counts
    found = []
    for taken in range(min(num, room // size) + 1):
        rest = _bins(tuple(others), room - taken * size)
        found += [(size,) * taken + more for more in rest]
    return tuple(found)


def is_feasible(groups: Iterable[ProcessGroup]) -> bool:
    """Whether a plan fits at all, if learners may be divided."""
    pieces = [g.piece for g in groups for _ in range(g.num_gpus // g.piece)]
    return can_pack(pieces)


def must_divide(groups: Iterable[ProcessGroup]) -> bool:
    """Whether some learner that a node could hold must be divided for lack of holes."""
    sizes = []
    for group in groups:
        if group.num_gpus <= GPUS_PER_NODE:
            sizes.append(group.num_gpus)
        else:
            sizes += [group.piece] * (group.num_gpus // group.piece)
    return not can_pack(sizes)


def fewest_nodes(group: ProcessGroup) -> int:
    """Nodes that a process group takes on empty nodes."""
    usable = GPUS_PER_NODE // group.piece * group.piece
    return -(-group.num_gpus // usable)


def can_be_compact(groups: Iterable[ProcessGroup]) -> bool:
    """Whether each group can be on its fewest nodes, if those that exceed a node fill theirs."""
    sizes = []
    for group in groups:
        usable = GPUS_PER_NODE // group.piece * group.piece
        whole, rest = divmod(group.num_gpus, usable)
        sizes += [usable] * whole + ([rest] if rest else [])
    return can_pack(sizes)
