"""Arithmetic tasks: an expression that uses the given numbers, and its value."""

import random
import re

from pettingllms.envs.tasks.propose import expressions
from pettingllms.envs.tasks.propose.domain import MAX_LEVEL, NUM_TRIES, Domain, ProposedTask
from pettingllms.envs.toolkit.answers import BadReply

MAX_LITERALS = 6
EASY_ANSWERS = ("0", "1")
ANSWER = re.compile(r"-?[0-9]{1,9}")


class Arithmetic(Domain):
    """Numbers from 2, each used at least once, with + - * / and parentheses."""

    max_letters = 120
    proposer_rules = (
        "A task is an arithmetic expression with + - * / and parentheses. It must use each given "
        f"number at least once and no other number, at most {MAX_LITERALS} numbers in all. "
        "Divisions must leave no remainder. A task is rejected if its value is 0, 1 or a given "
        "number, or if a part cancels itself."
    )
    solver_rules = "Compute the value of an arithmetic expression. It is a whole number."

    def __init__(self, num_given: int, max_number: int) -> None:
        self._num_given, self._max_number = num_given, max_number

    def draw(self, rng: random.Random) -> tuple[str, ...]:
        return tuple(map(str, rng.sample(range(2, self._max_number + 1), self._num_given)))

    def parse(self, text: str, given: tuple[str, ...]) -> ProposedTask:
        node = expressions.parse(self.checked(text))
        numbers = expressions.literals(node)
        if {*map(str, numbers)} != {*given}:
            raise BadReply("it must use each given number and no other number")
        if len(numbers) > MAX_LITERALS:
            raise BadReply(f"it has more than {MAX_LITERALS} numbers")
        answer, trivial = str(node.value), ""
        if answer in (*EASY_ANSWERS, *given):
            trivial = "its value is 0, 1 or a given number"
        elif expressions.cancels(node):
            trivial = "a part of it cancels itself"
        level = min(MAX_LEVEL, max(1, expressions.cost(node).bit_length()))
        return ProposedTask(expressions.render(node), answer, level, trivial)

    def write(self, given: tuple[str, ...], rng: random.Random) -> str:
        for _ in range(NUM_TRIES):
            text = _random_expression(given, rng)
            try:
                if not self.parse(text, given).trivial:
                    return text
            except BadReply:
                continue
        return "+".join(given)

    def read(self, text: str) -> str:
        answer = self.checked(text)
        if not ANSWER.fullmatch(answer):
            raise BadReply("the answer is not a whole number")
        return str(int(answer))

    def guess(self, task: ProposedTask, rng: random.Random) -> str:
        return str(rng.randint(0, 99))


def _random_expression(given: tuple[str, ...], rng: random.Random) -> str:
    """Numbers in random order, joined by random operators in random order."""
    repeats = rng.randint(0, max(0, min(2, MAX_LITERALS - len(given))))
    parts = [*given, *rng.choices(given, k=repeats)]
    rng.shuffle(parts)
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        joined = rng.choice("+++---***/").join(parts[at : at + 2])
        parts[at : at + 2] = [f"({joined})" if len(parts) > 2 else joined]
    return parts[0]
