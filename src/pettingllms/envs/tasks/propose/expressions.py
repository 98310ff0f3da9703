"""Integer arithmetic from text: a parser with limits, exact values, and a canonical form.

The canonical form flattens sums and products and sorts their parts. Two texts that differ in
spacing, parentheses, leading zeros or the order of operands are one task, so a proposer cannot use
these differences as a code. Nothing is passed to an interpreter.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pettingllms.envs.toolkit.answers import BadReply

TOKEN = re.compile(r"[0-9]+|[-+*/()]")
MAX_DIGITS, MAX_DEPTH = 3, 6
MAX_VALUE = 10**6


@dataclass(frozen=True, slots=True)
class Number:
    """A literal."""

    value: int


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms that are added, and terms that are subtracted. No part is a sum."""

    value: int
    plus: tuple["Node", ...]
    minus: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Factors, and divisors. No part is a product, and the division is exact."""

    value: int
    times: tuple["Node", ...]
    over: tuple["Node", ...]


Node = Number | Sum | Product


def parse(text: str) -> Node:
    """The expression in canonical form; BadReply if the text is none or exceeds a limit."""
    tokens = TOKEN.findall(text)
    if sum(map(len, tokens)) != len(text):
        raise BadReply("it has a symbol other than digits, + - * / and parentheses")
    if any(len(token) > MAX_DIGITS for token in tokens):
        raise BadReply(f"a number has more than {MAX_DIGITS} digits")
    reader = _Reader(tokens)
    node = reader.sum(0)
    if reader.next:
        raise BadReply("it goes on after the end of the expression")
    return node


def render(node: Node) -> str:
    """The canonical text, with the fewest parentheses."""
    if isinstance(node, Number):
        return str(node.value)
    if isinstance(node, Sum):
        return "+".join(map(render, node.plus)) + "".join(f"-{render(one)}" for one in node.minus)
    return "*".join(map(_factor, node.times)) + "".join(f"/{_factor(one)}" for one in node.over)


def literals(node: Node) -> list[int]:
    """All numbers of the expression."""
    if isinstance(node, Number):
        return [node.value]
    return [number for part in _parts(node) for number in literals(part)]


def cancels(node: Node) -> bool:
    """Whether some part is both added and subtracted, or both factor and divisor."""
    if isinstance(node, Number):
        return False
    pairs = (node.plus, node.minus) if isinstance(node, Sum) else (node.times, node.over)
    return bool({*pairs[0]} & {*pairs[1]}) or any(map(cancels, _parts(node)))


def cost(node: Node) -> int:
    """Digit operations that schoolbook arithmetic needs."""
    if isinstance(node, Number):
        return 0
    parts = list(_parts(node))
    inner = sum(map(cost, parts))
    if isinstance(node, Sum):
        return inner + sum(_digits(part) for part in parts[1:])
    running, steps = parts[0].value, 0
    for part in parts[1:]:
        steps += len(str(abs(running))) * _digits(part)
        running *= part.value
    return inner + steps


class _Reader:
    """Recursive descent over tokens. Depth and the number of tokens are limited."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def sum(self, depth: int) -> Node:
        """Terms with + or - between them."""
        parts: tuple[list[Node], list[Node]] = ([self._product(depth)], [])
        while self.next and self.next in "+-":
            parts[self._take() == "-"].append(self._product(depth))
        return _sum(*parts)

    def _product(self, depth: int) -> Node:
        parts: tuple[list[Node], list[Node]] = ([self._atom(depth)], [])
        while self.next and self.next in "*/":
            parts[self._take() == "/"].append(self._atom(depth))
        return _product(*parts)

    def _atom(self, depth: int) -> Node:
        first = self._take()
        if first.isdigit():
            return Number(int(first))
        if first != "(":
            raise BadReply("a number or ( is missing")
        if depth == MAX_DEPTH:
            raise BadReply(f"parentheses are nested more than {MAX_DEPTH} deep")
        node = self.sum(depth + 1)
        if self._take() != ")":
            raise BadReply("a ) is missing")
        return node

    def _take(self) -> str:
        token = self.next
        self._at += 1
        return token


def _sum(plus: Sequence[Node], minus: Sequence[Node]) -> Node:
    added = [one for part in plus for one in (part.plus if isinstance(part, Sum) else (part,))]
    added += [one for part in minus if isinstance(part, Sum) for one in part.minus]
    taken = [one for part in minus for one in (part.plus if isinstance(part, Sum) else (part,))]
    taken += [one for part in plus if isinstance(part, Sum) for one in part.minus]
    if len(added) + len(taken) == 1:
        return added[0]
    value = sum(one.value for one in added) - sum(one.value for one in taken)
    return Sum(_checked(value), _sorted(added), _sorted(taken))


def _product(times: Sequence[Node], over: Sequence[Node]) -> Node:
    divisor = math.prod(part.value for part in over)
    if divisor == 0:
        raise BadReply("it divides by zero")
    if math.prod(part.value for part in times) % divisor:
        raise BadReply("a division leaves a remainder")
    up = [one for part in times for one in (part.times if isinstance(part, Product) else (part,))]
    up += [one for part in over if isinstance(part, Product) for one in part.over]
    down = [one for part in over for one in (part.times if isinstance(part, Product) else (part,))]
    down += [one for part in times if isinstance(part, Product) for one in part.over]
    if len(up) + len(down) == 1:
        return up[0]
    value = math.prod(part.value for part in times) // divisor
    return Product(_checked(value), _sorted(up), _sorted(down))


def _checked(value: int) -> int:
    if abs(value) > MAX_VALUE:
        raise BadReply(f"a value is above {MAX_VALUE}")
    return value


def _sorted(parts: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(sorted(parts, key=lambda part: (-abs(part.value), render(part))))


def _parts(node: Sum | Product) -> Iterator[Node]:
    yield from node.plus if isinstance(node, Sum) else node.times
    yield from node.minus if isinstance(node, Sum) else node.over


def _factor(node: Node) -> str:
    return f"({render(node)})" if isinstance(node, Sum) else render(node)


def _digits(node: Node) -> int:
    return len(str(abs(node.value)))
