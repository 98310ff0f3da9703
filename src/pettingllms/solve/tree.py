"""A small game written out: every state that legal replies lead to, by forks of the environment.

What a role knows is its prompt, and nothing else: states in which it reads the same are one
information state, in which a policy is one distribution over replies. States are joined by value,
so positions that several orders of moves lead to are walked through once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from pettingllms.errors import SolveError
from pettingllms.types import Message, Rewards, Scored

MAX_NODES = 300_000
"""States of the largest game that is written out."""
ROUNDING = 1e-9


@runtime_checkable
class Solvable(Protocol):
    """What an environment has, besides the contract, so that it can be written out."""

    def starts(self) -> Iterable[tuple[float, Any]]:
        """Every first state, with its chance: all of the game's chance is in it."""

    def legal(self, state: Any, role: str) -> Sequence[str]:
        """Every reply of an acting role that is a legal move.

        A zero-sum game with hidden parts also has `values`: what it is worth to each role.
        """


@dataclass(slots=True)
class InfoState:
    """All states that a role cannot tell from each other when it is asked."""

    role: str
    messages: tuple[Message, ...]
    replies: tuple[str, ...]
    nodes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Node:
    """One state; for each legal reply the state after it, and what it pays each role."""

    info: int = -1
    """Information state of the role that is asked; -1 once the game is over."""
    children: list[int] = field(default_factory=list)
    paid: list[tuple[float, ...]] = field(default_factory=list)


class Tree:
    """A game for reading policies and working out best replies."""

    def __init__(self, env: Any, max_nodes: int = MAX_NODES) -> None:
        if not isinstance(env, Solvable):
            raise SolveError(
                f"'{env.id}' cannot be written out: it has no starts() and legal(), which name its "
                "first states and the legal replies; set eval.distance = false"
            )
        game: Any = env
        self.env = game
        self.roles: tuple[str, ...] = game.roles
        self.nodes: list[Node] = []
        """Each state once, those after it later in the list."""
        self.infos: list[InfoState] = []
        self.states: list[Any] = []
        """The environment's states, in the order of the nodes."""
        self.starts: list[tuple[float, int]] = []
        self._max_nodes = max_nodes
        self._by_prompt: dict[tuple[str, tuple[Message, ...]], int] = {}
        self._write_out()
        if self.is_zero_sum and not self.is_open:
            self._refuse_what_forgets()

    @cached_property
    def is_open(self) -> bool:
        """Whether nothing is hidden: each information state is one state."""
        return all(len(info.nodes) == 1 for info in self.infos)

    @cached_property
    def is_zero_sum(self) -> bool:
        """Whether two roles win what the other one loses."""
        return len(self.roles) == 2 and all(
            abs(sum(paid)) < ROUNDING for node in self.nodes for paid in node.paid
        )

    @cached_property
    def is_team(self) -> bool:
        """Whether all roles are always paid alike."""
        return all(max(paid) == min(paid) for node in self.nodes for paid in node.paid)

    @cached_property
    def values(self) -> Mapping[str, float]:
        """What the game is worth to each role if all play perfectly."""
        if self.is_team:
            from pettingllms.solve.team import best_team_value

            return dict.fromkeys(self.roles, best_team_value(self))
        if not self.is_zero_sum:
            raise SolveError(
                f"'{self.env.id}' is neither a zero-sum game of two roles nor a team's, so there "
                "is no one value to be distant from; set eval.distance = false"
            )
        if not self.is_open:
            found: Mapping[str, float] = self.env.values
            return found
        first, second = self.roles
        value = sum(chance * self.minimax[node] for chance, node in self.starts)
        return {first: value, second: -value}

    @cached_property
    def minimax(self) -> list[float]:
        """For each state of an open zero-sum game what is still to be won by the first role."""
        worth = [0.0] * len(self.nodes)
        for at in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[at]
            if node.children:
                best = max if self.infos[node.info].role == self.roles[0] else min
                pairs = zip(node.paid, node.children, strict=True)
                worth[at] = best(paid[0] + worth[child] for paid, child in pairs)
        return worth

    def _write_out(self) -> None:
        """Every state once, in an order in which what comes after stands after."""
        after: dict[Any, list[tuple[Any, tuple[float, ...]]]] = {}
        starts = []
        done: list[Any] = []
        for chance, first in self.env.starts():
            starts.append((chance, first))
            stack = [(first, False)]
            while stack:
                state, left = stack.pop()
                if left:
                    done.append(state)
                elif state not in after:
                    after[state] = self._steps(state)
                    if len(after) > self._max_nodes:
                        raise SolveError(
                            f"'{self.env.id}' with these options has more than "
                            f"{self._max_nodes:,} states, too many to be written out; take a "
                            "smaller variant, or set eval.distance = false"
                        )
                    stack.append((state, True))
                    stack += [(child, False) for child, _ in after[state]]
        self.states = done[::-1]
        place = {state: at for at, state in enumerate(self.states)}
        self.starts = [(chance, place[state]) for chance, state in starts]
        for at, state in enumerate(self.states):
            node = Node()
            node.children = [place[child] for child, _ in after[state]]
            node.paid = [paid for _, paid in after[state]]
            if node.children:
                node.info = self._info(state, at)
            self.nodes.append(node)

    def _steps(self, state: Any) -> list[tuple[Any, tuple[float, ...]]]:
        acting = self.env.acting(state)
        if not acting:
            return []
        if len(acting) > 1:
            raise SolveError(
                f"in '{self.env.id}' {len(acting)} roles speak at the same time, and a game is "
                "written out only if they speak one after another; set eval.distance = false"
            )
        steps = []
        for reply in self.env.legal(state, acting[0]):
            result = self.env.step(state, {acting[0]: reply})
            steps.append((result.state, tuple(_paid(result.rewards, role) for role in self.roles)))
        return steps

    def _info(self, state: Any, at: int) -> int:
        (role,) = self.env.acting(state)
        messages, replies = tuple(self.env.observe(state, role)), self.env.legal(state, role)
        index = self._by_prompt.setdefault((role, messages), len(self.infos))
        if index == len(self.infos):
            self.infos.append(InfoState(role, messages, tuple(replies)))
        if self.infos[index].replies != tuple(replies):
            raise SolveError(
                f"'{self.env.id}' shows '{role}' the same in two states with other legal replies"
            )
        self.infos[index].nodes.append(at)
        return index

    def _refuse_what_forgets(self) -> None:
        """A best reply is found from one information state to the next, which is right only if a
        role still knows what it knew and did before."""
        earlier: list[set[tuple[tuple[int, int], ...]]] = [set() for _ in self.nodes]
        for role in self.roles:
            for seen in earlier:
                seen.clear()
            for _, start in self.starts:
                earlier[start].add(())
            for at, node in enumerate(self.nodes):
                own = bool(node.children) and self.infos[node.info].role == role
                for number, child in enumerate(node.children):
                    done = ((node.info, number),) if own else ()
                    earlier[child] |= {(*before, *done) for before in earlier[at]}
            for info in self.infos:
                ways = {before for at in info.nodes for before in earlier[at]}
                if info.role == role and len(info.nodes) > 1 and len(ways) > 1:
                    raise SolveError(
                        f"in '{self.env.id}' a prompt of '{role}' leaves out what it did or saw "
                        "before, so a best reply cannot be worked out"
                    )


def _paid(rewards: Rewards, role: str) -> float:
    """What a step pays a role: its own and the team's."""
    paid = [rewards.agent.get(role), rewards.team]
    return sum(reward.value for reward in paid if isinstance(reward, Scored))
