"""Layouts: on which node and GPUs each process group of a run is placed.

A layout is planned before anything starts. What does not fit is refused with what is missing, on
each node: the total over nodes says nothing about engines, which cannot be divided over nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from pettingllms.errors import ClusterError
from pettingllms.policies.packing import Item, Parts, fill, first_misfit, pack

Kind = Literal["engine", "learner", "critic", "colocated"]
MAX_NODES_SHOWN = 8
"""Nodes that a message names."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and the GPUs on it that a run may use."""

    name: str
    num_gpus: int
    num_held: int = 0
    """Further GPUs, which other programs hold."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Processes that are placed together: one engine, the ranks of a learner, or both on shared
    GPUs."""

    kind: Kind
    model: str
    """Name of the model group, or of the critic."""
    policies: tuple[str, ...]
    num_gpus: int
    piece: int
    """GPUs that must be on one node: an engine is not divided, a learner is one rank per GPU."""
    number: int = 0
    """Of an engine among the engines of its model."""
    key: str = ""
    """Configuration key that decides `piece`."""

    @property
    def name(self) -> str:
        """Kind and policies, for messages and tables."""
        policies = ", ".join(f"'{policy}'" for policy in self.policies)
        match self.kind:
            case "engine":
                return f"engine {self.number} of {policies}"
            case "colocated":
                return f"engines and learner of {policies}"
            case "critic":
                return f"'{self.model}'"
            case _:
                return f"learner of {policies}"


@dataclass(frozen=True, slots=True)
class Share:
    """GPUs of one process group on one node."""

    node: int
    gpus: tuple[int, ...]
    """Places in the picture of a node. Ray chooses the devices."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A process group and where it is."""

    group: ProcessGroup
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Layout:
    """The places of all process groups of a run, in the order of the configuration."""

    nodes: tuple[Node, ...]
    placed: tuple[Placed, ...]

    @cached_property
    def num_gpus(self) -> int:
        """GPUs in use."""
        return sum(one.group.num_gpus for one in self.placed)

    @cached_property
    def divided(self) -> tuple[Placed, ...]:
        """Process groups on several nodes."""
        return tuple(one for one in self.placed if len(one.shares) > 1)


def plan_layout(groups: Sequence[ProcessGroup], nodes: Sequence[Node]) -> Layout:
    """The layout of process groups on nodes; raises ClusterError with what is missing."""
    return _planned(tuple(groups), tuple(nodes))


@lru_cache(maxsize=64)  # advice about memory plans the same layout many times
def _planned(groups: tuple[ProcessGroup, ...], nodes: tuple[Node, ...]) -> Layout:
    items = [
        Item(group.num_gpus, group.piece, group.model if group.kind == "engine" else "")
        for group in groups
    ]
    free = [node.num_gpus for node in nodes]
    packed = pack(items, free)
    if packed is None:
        raise ClusterError(_missing(groups, nodes, items))
    used = [0] * len(nodes)
    placed = []
    for group, parts in zip(groups, packed, strict=True):
        shares = []
        for node, num_gpus in sorted(parts.items()):
            shares.append(Share(node, tuple(range(used[node], used[node] + num_gpus))))
            used[node] += num_gpus
        placed.append(Placed(group, tuple(shares)))
    return Layout(nodes, tuple(placed))


def spread_over_nodes(groups: Sequence[ProcessGroup], nodes: Sequence[Node]) -> Layout:
    """A layout without GPUs, on nodes whose `num_gpus` are cores. Processes go to the node with the
    fewest of them per core. A learner stays on one node that has a core per rank, or is divided
    over as few nodes as possible. Cores are shared, so there is always a layout."""
    load = [0] * len(nodes)
    placed = []
    for group in groups:
        shares = []
        for node, num in sorted(_on_cores(group, nodes, load).items()):
            shares.append(Share(node, tuple(range(load[node], load[node] + num))))
            load[node] += num
        placed.append(Placed(group, tuple(shares)))
    return Layout(tuple(nodes), tuple(placed))


def _on_cores(group: ProcessGroup, nodes: Sequence[Node], load: Sequence[int]) -> Parts:
    cores = [node.num_gpus for node in nodes]
    enough = [at for at, num in enumerate(cores) if num >= group.num_gpus]
    if not enough and group.piece < group.num_gpus:
        divided = fill(cores, Item(group.num_gpus, group.piece))
        if divided is not None:
            return divided
    candidates = enough or list(range(len(nodes)))
    least = min(candidates, key=lambda at: (load[at] + group.num_gpus) / cores[at])
    return {least: group.num_gpus}


def _missing(groups: Sequence[ProcessGroup], nodes: Sequence[Node], items: Sequence[Item]) -> str:
    needed, found = sum(group.num_gpus for group in groups), sum(n.num_gpus for n in nodes)
    widest = max(groups, key=lambda group: group.piece)
    most = max((node.num_gpus for node in nodes), default=0)
    if widest.piece > most and widest.piece > 1:
        return (
            f"{widest.name} needs {widest.piece} GPUs on one node ({widest.key}), but "
            f"{_nodes(nodes, [node.num_gpus for node in nodes])}; lower {widest.key}, or use "
            "larger nodes"
        )
    if needed > found:
        held = sum(node.num_held for node in nodes)
        used = f" and {held} are in use by other programs" if held else ""
        where = "" if len(nodes) == 1 else f" on {len(nodes)} nodes"
        return (
            f"the run needs {_plural(needed, 'GPU')} ({_counts(groups)}), but only {found} "
            f"{'was' if found == 1 else 'were'} found{where}"
            f"{used}: {needed - found} missing; lower num_replicas or num_ranks "
            "([inference], [learner] or [policies.NAME.resources]), set cluster.placement = "
            '"colocated" to let engines and learners share GPUs, or add nodes'
        )
    at, left = first_misfit(items, [node.num_gpus for node in nodes])
    return (
        f"the run needs {needed} of {found} GPUs, but no layout was found in which each engine is "
        f"on one node: {groups[at].name} needs {groups[at].piece} GPUs on one node "
        f"({groups[at].key}), and after placing larger ones {_nodes(nodes, left)}; lower "
        f"{groups[at].key}, or add nodes"
    )


def _nodes(nodes: Sequence[Node], free: Sequence[int]) -> str:
    """The free GPUs of the nodes that have most."""
    best = sorted(range(len(nodes)), key=lambda at: -free[at])[:MAX_NODES_SHOWN]
    texts = [
        f"{nodes[at].name} has {free[at]} free"
        + (f" ({nodes[at].num_held} in use by other programs)" if nodes[at].num_held else "")
        for at in best
    ]
    others = len(nodes) - len(best)
    return ", ".join(texts) + (f", {others} others have fewer or as many" if others else "")


def _counts(groups: Sequence[ProcessGroup]) -> str:
    """Engines and ranks by their width, as in "2 engines of 4 GPUs, 8 learner ranks"."""
    counts = dict[tuple[str, str], int]()
    for group in groups:
        num = 1 if group.kind == "engine" else group.num_gpus
        what = {
            "engine": ("engine", f" of {_plural(group.num_gpus, 'GPU')}"),
            "learner": ("learner rank", ""),
            "critic": ("critic rank", ""),
            "colocated": ("GPU", " of colocated engines and learners"),
        }[group.kind]
        counts[what] = counts.get(what, 0) + num
    return ", ".join(f"{_plural(num, what)}{rest}" for (what, rest), num in counts.items())


def _plural(num: int, what: str) -> str:
    return f"{num} {what}" if num == 1 else f"{num} {what}s"
