"""Packing process groups into nodes: an exact search that divides as few of them as possible.

Process groups are placed largest first. Several engines of one model prefer different nodes;
everything else prefers the fullest node on which it fits, so that large holes stay.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

MAX_TRIES = 20_000
"""Placements that one search tries before it gives up."""
MAX_CHOICES = 200
"""Choices of divided groups, of one size, that are tried."""
Parts = dict[int, int]
"""GPUs by node."""


@dataclass(frozen=True, slots=True)
class Item:
    """What must be placed: `size` GPUs, in parts that are multiples of `piece`."""

    size: int
    piece: int
    spread: str = ""
    """Items with the same name prefer different nodes; empty: no preference."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """An item, or one piece of it, on one node."""

    at: int
    size: int
    spread: str
    is_piece: bool


def pack(items: Sequence[Item], free: Sequence[int]) -> list[Parts] | None:
    """The parts of each item, given the free GPUs of each node; None if none were found.

    An item that fits on some node is divided only if there is no other way. An item that no node
    can hold is divided over as few nodes as possible.
    """
    if not items:
        return []
    largest = max(free, default=0)
    if sum(item.size for item in items) > sum(free):
        return None
    divisible = [at for at, item in enumerate(items) if item.piece < item.size]
    must = {at for at in divisible if items[at].size > largest}
    may = [at for at in divisible if at not in must]
    if found := _pack(items, free, must):
        return found
    every = _pack(items, free, {*must, *may}) if may else None
    if every is None:
        return None
    for count in range(1, len(may)):
        for chosen in islice(combinations(may, count), MAX_CHOICES):
            if found := _pack(items, free, {*must, *chosen}):
                return found
    return every


def first_misfit(items: Sequence[Item], free: Sequence[int]) -> tuple[int, list[int]]:
    """The largest item that found no place while smaller ones were still to come, and the GPUs that
    were free on each node at that time. For messages."""
    room = list(free)
    for at in sorted(range(len(items)), key=lambda at: -items[at].piece):
        parts = fill(room, items[at])
        if parts is None:
            return at, room
        for node, num_gpus in parts.items():
            room[node] -= num_gpus
    return max(range(len(items)), key=lambda at: items[at].piece), room


def fill(free: Sequence[int], item: Item) -> Parts | None:
    """The fewest nodes that hold an item: the largest, and of those that hold the rest the
    fullest."""
    parts: Parts = {}
    left = item.size
    while left:
        rooms = {node: room for node, room in enumerate(free) if node not in parts}
        if enough := [node for node, room in rooms.items() if room >= left]:
            parts[min(enough, key=lambda node: rooms[node])] = left
            return parts
        most = max(rooms, key=lambda node: rooms[node], default=None)
        usable = 0 if most is None else rooms[most] // item.piece * item.piece
        if most is None or not usable:
            return None
        parts[most] = usable
        left -= usable
    return parts


def _pack(items: Sequence[Item], free: Sequence[int], divided: set[int]) -> list[Parts] | None:
    """Divided items first, while nodes are empty; if that fails, in the holes that others leave."""
    return _divided_first(items, free, divided) or (
        _divided_last(items, free, divided) if divided else None
    )


def _divided_first(
    items: Sequence[Item], free: Sequence[int], divided: set[int]
) -> list[Parts] | None:
    room, parts = list(free), dict[int, Parts]()
    for at in sorted(divided, key=lambda at: -items[at].size):
        filled = fill(room, items[at])
        if filled is None:
            return None
        parts[at] = filled
        for node, num_gpus in filled.items():
            room[node] -= num_gpus
    wholes = [_whole(at, item) for at, item in enumerate(items) if at not in divided]
    nodes = _search(wholes, room)
    return None if nodes is None else _merged(items, wholes, nodes, parts)


def _divided_last(
    items: Sequence[Item], free: Sequence[int], divided: set[int]
) -> list[Parts] | None:
    """Pieces of several GPUs are searched for like whole items; single GPUs fit into any hole."""
    wholes = [_whole(at, item) for at, item in enumerate(items) if at not in divided]
    wholes += [
        _Whole(at, items[at].piece, "", is_piece=True)
        for at in sorted(divided)
        if items[at].piece > 1
        for _ in range(items[at].size // items[at].piece)
    ]
    room = list(free)
    nodes = _search(wholes, room)
    if nodes is None:
        return None
    parts = dict[int, Parts]()
    singles = [at for at in divided if items[at].piece == 1]
    for at in sorted(singles, key=lambda at: -items[at].size):
        filled = fill(room, items[at])
        if filled is None:
            return None
        parts[at] = filled
        for node, num_gpus in filled.items():
            room[node] -= num_gpus
    return _merged(items, wholes, nodes, parts)


def _whole(at: int, item: Item) -> _Whole:
    return _Whole(at, item.size, item.spread, is_piece=False)


def _merged(
    items: Sequence[Item], wholes: Sequence[_Whole], nodes: Sequence[int], parts: dict[int, Parts]
) -> list[Parts]:
    for whole, node in zip(wholes, nodes, strict=True):
        own = parts.setdefault(whole.at, {})
        own[node] = own.get(node, 0) + whole.size
    return [parts[at] for at in range(len(items))]


def _search(wholes: Sequence[_Whole], room: list[int]) -> list[int] | None:
    """The node of each, by depth-first search; `room` is what is left afterwards."""
    order = sorted(range(len(wholes)), key=lambda at: -wholes[at].size)
    sized = [wholes[at] for at in order]
    chosen: list[int] = []
    failed: set[tuple[int, tuple[int, ...]]] = set()
    options = [_options(sized, chosen, room)]
    tries = 0
    while len(chosen) < len(sized):
        node = next(options[-1], None)
        tries += 1
        if node is None:
            failed.add((len(chosen), tuple(sorted(room))))
            options.pop()
            if not chosen:
                return None
            room[chosen[-1]] += sized[len(chosen) - 1].size
            chosen.pop()
            continue
        if tries > MAX_TRIES:
            return None
        room[node] -= sized[len(chosen)].size
        chosen.append(node)
        if (len(chosen), tuple(sorted(room))) in failed:
            room[node] += sized[len(chosen) - 1].size
            chosen.pop()
            continue
        options.append(_options(sized, chosen, room))
    found = dict(zip(order, chosen, strict=True))
    return [found[at] for at in range(len(wholes))]


def _options(sized: Sequence[_Whole], chosen: Sequence[int], room: Sequence[int]) -> Iterator[int]:
    """Nodes for the next one, the best first; one of several nodes that make no difference."""
    if len(chosen) == len(sized):
        return iter(())
    one = sized[len(chosen)]
    num_alike = sum(other.size == one.size for other in sized[len(chosen) :])
    if sum(left // one.size for left in room) < num_alike:
        return iter(())
    held = dict[int, int]()
    for other, node in zip(sized, chosen, strict=False):
        same = other.at == one.at if one.is_piece else one.spread and other.spread == one.spread
        held[node] = held.get(node, 0) + bool(same)
    keys = dict[tuple[int, int], int]()
    for node, left in enumerate(room):
        if left >= one.size:
            num = held.get(node, 0)
            key = (int(not num), -left) if one.is_piece else (num, left)
            keys.setdefault(key, node)
    return iter([keys[key] for key in sorted(keys)])
