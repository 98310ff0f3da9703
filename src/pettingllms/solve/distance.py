"""How far a policy is from perfect play, exactly.

In a zero-sum game of two roles, a seat's loss is what the best opponent of its policy wins beyond
the game's value. The losses of both seats add up to NashConv, which is 0 only for a Nash
equilibrium. Where nothing is hidden there is also the mean over positions of what a move gives
away. In a team's game it is what the team gets less than the best team could.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from pettingllms.errors import SolveError
from pettingllms.solve.tree import InfoState, Tree

Table = Mapping[int, Sequence[float]]
"""By the number of an information state: the probability of each of its replies."""
Policy = Callable[[Sequence[InfoState]], Sequence[Sequence[float]]]
"""Information states in, the probabilities of their replies out."""


def distance(env: Any, policy: Policy) -> dict[str, float]:
    """What `measure` says of a policy that plays every role of an environment."""
    tree = Tree(env)
    return measure(tree, read(tree, policy), tree.roles)


def nash_conv(env: Any, policy: Policy) -> float:
    """What best repliers win from the policy, over all seats."""
    tree = Tree(env)
    table = read(tree, policy)
    return sum(lost(tree, table, role) for role in tree.roles)


def read(tree: Tree, policy: Policy) -> dict[int, Sequence[float]]:
    """The policy at every information state."""
    return dict(enumerate(policy(tree.infos)))


def measure(tree: Tree, table: Table, seats: Collection[str]) -> dict[str, float]:
    """The distances of a policy that plays these seats; its metrics by name."""
    if tree.is_team:
        first = tree.roles[0]
        return {"regret": tree.values[first] - play_value(tree, table)[first]}
    found = {"nash_conv": math.fsum(lost(tree, table, role) for role in seats)}
    if tree.is_open:
        found["regret"] = move_regret(tree, table, seats)
    return found


def lost(tree: Tree, table: Table, role: str) -> float:
    """What the best opponent of a role wins beyond the game's value; 0 is perfect play."""
    (rival,) = (other for other in tree.roles if other != role)
    return best_reply_value(tree, table, rival) - tree.values[rival]


def best_reply_value(tree: Tree, table: Table, role: str) -> float:
    """What a role wins by the best reply to the others, whose policies the table has."""
    seat = tree.roles.index(role)
    weights = _weights(tree, table, role)

    @cache
    def value(at: int) -> float:
        node = tree.nodes[at]
        if not node.children:
            return 0.0
        after = [
            paid[seat] + value(child) for paid, child in zip(node.paid, node.children, strict=True)
        ]
        if tree.infos[node.info].role == role:
            return after[best(node.info)]
        return sum(p * v for p, v in zip(table[node.info], after, strict=True))

    @cache
    def best(info: int) -> int:
        """The reply that is best over all states that look the same, as likely as they are."""
        states = [(weights[at], tree.nodes[at]) for at in tree.infos[info].nodes]
        worth = [
            sum(weight * (n.paid[a][seat] + value(n.children[a])) for weight, n in states)
            for a in range(len(tree.infos[info].replies))
        ]
        return worth.index(max(worth))

    return sum(chance * value(at) for chance, at in tree.starts)


def _weights(tree: Tree, table: Table, role: str) -> list[float]:
    """How likely chance and the others make each state, if the role does all to come there."""
    weights = [0.0] * len(tree.nodes)
    for chance, at in tree.starts:
        weights[at] += chance
    for at, node in enumerate(tree.nodes):
        if not node.children:
            continue
        own = tree.infos[node.info].role == role
        chances = [1.0] * len(node.children) if own else table[node.info]
        for probability, child in zip(chances, node.children, strict=True):
            weights[child] += weights[at] * probability
    return weights


def play_value(tree: Tree, table: Table) -> dict[str, float]:
    """What each role is paid on average if all play by the table."""
    reach = _weights(tree, table, "")
    totals = dict.fromkeys(tree.roles, 0.0)
    for at, node in enumerate(tree.nodes):
        chances = table[node.info] if node.children else ()
        for probability, paid in zip(chances, node.paid, strict=True):
            for role, amount in zip(tree.roles, paid, strict=True):
                totals[role] += reach[at] * probability * amount
    return totals


def move_regret(tree: Tree, table: Table, seats: Collection[str]) -> float:
    """What a move gives away of the game's exact value, on average over all of their positions."""
    worth = tree.minimax
    given = []
    for index, info in enumerate(tree.infos):
        if info.role not in seats:
            continue
        node, sign = tree.nodes[info.nodes[0]], 1 if info.role == tree.roles[0] else -1
        pairs = zip(node.paid, node.children, strict=True)
        after = [sign * (paid[0] + worth[child]) for paid, child in pairs]
        given.append(max(after) - sum(p * v for p, v in zip(table[index], after, strict=True)))
    return math.fsum(given) / len(given)


def refuse_unread(tree: Tree, read_seats: Collection[str]) -> None:
    """Refuse a game whose distance cannot be measured, before anything was played."""
    unread = [role for role in tree.roles if role not in read_seats]
    if tree.is_team and unread:
        raise SolveError(
            f"what a team is short of is known only if all of its policies can be read, and those "
            f"of {', '.join(unread)} have no engine; give these roles a model, or set "
            "eval.distance = false"
        )
    tree.values  # noqa: B018 - says why if there are none
