"""The best that a team can do in a game in which each of it knows something else.

What is common knowledge can be reasoned about by all at once: a coordinator who knows no more than
that tells the role that speaks what to say for each thing that it may be seeing (Nayyar et al.,
2013). The best such orders are found by going through all of them, so this is for tiny games alone.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pettingllms.errors import SolveError
from pettingllms.solve.tree import Tree

MAX_BELIEFS = 200_000
"""Beliefs that are gone through before a game is called too large."""
DIGITS = 12
SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class Possible:
    """A state that may be the true one, how likely it is, and what each role has seen so far."""

    node: int
    weight: float
    seen: tuple[int, ...]


Belief = tuple[Possible, ...]


def best_team_value(tree: Tree) -> float:
    """What the best team is paid on average, each role remembering all that it was shown."""
    return _Coordinator(tree).start()


class _Coordinator:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[Any, float] = {}
        self._numbers: dict[Any, int] = {}
        self._shown = [
            tuple(self._number(tuple(tree.env.observe(state, role))) for role in tree.roles)
            for state in tree.states
        ]
        self._most = self._bounds()

    def start(self) -> float:
        first = [Possible(at, chance, self._shown[at]) for chance, at in self._tree.starts]
        return sum(self._value(belief) for belief in _apart(first))

    def _bounds(self) -> list[float]:
        """What can still be won from a state by somebody who sees everything."""
        most = [0.0] * len(self._tree.nodes)
        for at in range(len(most) - 1, -1, -1):
            node = self._tree.nodes[at]
            after = zip(node.paid, node.children, strict=True)
            most[at] = max((paid[0] + most[child] for paid, child in after), default=0.0)
        return most

    def _value(self, belief: Belief) -> float:
        """What is paid from here on, by the chance of coming here."""
        share = sum(possible.weight for possible in belief)
        key = _alike(belief, share)
        if key not in self._known:
            if len(self._known) >= MAX_BELIEFS:
                raise SolveError(
                    f"'{self._tree.env.id}' with these options is too large for an exact value: "
                    f"more than {MAX_BELIEFS:,} beliefs; take a smaller variant"
                )
            self._known[key] = self._best(belief) / share
        return self._known[key] * share

    def _best(self, belief: Belief) -> float:
        nodes = [self._tree.nodes[possible.node] for possible in belief]
        if not any(node.children for node in nodes):
            return 0.0
        seat = self._tree.roles.index(self._tree.infos[nodes[0].info].role)
        kinds: dict[int, list[Possible]] = {}
        for possible in belief:
            kinds.setdefault(possible.seen[seat], []).append(possible)
        bound = sum(p.weight * self._most[p.node] for p in belief)
        best = float("-inf")
        for orders in self._orders(list(kinds.values())):
            paid, after = self._after(list(kinds.values()), orders, seat)
            best = max(best, paid + sum(self._value(part) for part in _apart(after)))
            if best >= bound - SLACK:
                break
        return best

    def _orders(self, kinds: list[list[Possible]]) -> Iterator[tuple[int, ...]]:
        """What to say for each thing that the role may be seeing."""
        counts = [len(self._tree.nodes[kind[0].node].children) for kind in kinds]
        return itertools.product(*map(range, counts))

    def _after(
        self, kinds: list[list[Possible]], orders: tuple[int, ...], seat: int
    ) -> tuple[float, list[Possible]]:
        paid, after = 0.0, []
        for kind, order in zip(kinds, orders, strict=True):
            for possible in kind:
                node = self._tree.nodes[possible.node]
                paid += possible.weight * node.paid[order][0]
                child = node.children[order]
                seen = tuple(
                    self._number((before, shown, order if at == seat else None))
                    for at, (before, shown) in enumerate(
                        zip(possible.seen, self._shown[child], strict=True)
                    )
                )
                after.append(Possible(child, possible.weight, seen))
        return paid, after

    def _number(self, thing: Any) -> int:
        return self._numbers.setdefault(thing, len(self._numbers))


def _apart(possible: list[Possible]) -> list[Belief]:
    """Parts that all roles can tell from each other, and know that all can."""
    parts: list[tuple[set[tuple[int, int]], list[Possible]]] = []
    for one in possible:
        marks, members = set(enumerate(one.seen)), [one]
        rest = []
        for part in parts:
            if part[0] & marks:
                marks |= part[0]
                members = part[1] + members
            else:
                rest.append(part)
        parts = [*rest, (marks, members)]
    return [tuple(members) for _, members in parts]


def _alike(belief: Belief, share: float) -> Any:
    """The same for beliefs that differ only in how they came about."""
    names: dict[tuple[int, int], int] = {}
    return tuple(
        (
            p.node,
            round(p.weight / share, DIGITS),
            tuple(names.setdefault((at, s), len(names)) for at, s in enumerate(p.seen)),
        )
        for p in sorted(belief, key=lambda p: p.node)
    )
