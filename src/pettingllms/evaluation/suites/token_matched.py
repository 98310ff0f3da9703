"""One role alone against the team, at equal tokens.

A team that talks longer than one role alone may win by its tokens and not by its roles. So both get
the same budget for a task, what the dearer of the two samples for one play on average, and the
cheaper one plays as often as that pays for. Which of its plays counts is decided by the same rule
for both: `pass`, that one of them is right, as if somebody could tell (a test suite, a proof
checker); or `majority`, that the commonest answer is, which anybody can find out. A number of plays
that is not whole is a coin toss between the two beside it: its expected tokens are the budget's.

Tasks are the same in both forms, so the difference is taken task by task, and its interval comes
from drawing tasks again, the budget included.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pettingllms.algos.credit import mean
from pettingllms.evaluation.suites.scoring import (
    Play,
    by_task,
    has_answers,
    pass_curve,
    unit_of,
    vote_curve,
)
from pettingllms.runs.scores import FEW, NUM_RESAMPLES, SEED, Estimate, Floats, estimate

PASS, MAJORITY = "pass", "majority"
SLACK = 1.5
"""How many more plays a budget may pay for once tasks are drawn again."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Both forms under one rule, and how much better the team is."""

    team: Estimate
    solo: Estimate
    difference: Estimate


@dataclass(frozen=True, slots=True)
class Equal:
    """Team and solo at one budget."""

    budget: float
    """Tokens for a task."""
    unit: str
    plays: dict[str, float]
    """By form: plays that the budget pays for."""
    is_short: bool
    """Whether the cheaper form was played less often than that, so that its number is too low."""
    pairs: dict[str, Pair]
    """By rule."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def equal_from(data: dict[str, Any]) -> Equal:
    """What `to_json` wrote."""
    pairs = {
        rule: Pair(**{name: Estimate(**one) for name, one in pair.items()})
        for rule, pair in data["pairs"].items()
    }
    return Equal(**{**data, "pairs": pairs})


def num_plays_for(team: Sequence[Play], solo: Sequence[Play], most: int) -> tuple[int, int]:
    """How often team and solo must play each task for both to have used the same tokens."""
    numbers = [len(next(iter(by_task(plays).values()))) for plays in (team, solo)]
    used = [sum(play.tokens for play in plays) for plays in (team, solo)]
    if not all(used):
        return numbers[0], numbers[1]
    wanted = [math.ceil(n * max(used) / own) for n, own in zip(numbers, used, strict=True)]
    first, second = (max(n, min(most, w)) for n, w in zip(numbers, wanted, strict=True))
    return first, second


def compare(team: Sequence[Play], solo: Sequence[Play]) -> Equal | None:
    """Both forms at equal tokens; None where a form sampled nothing, or what is counted differs."""
    forms = (_Form(team), _Form(solo))
    costs = [float(form.tokens.mean()) for form in forms]
    units = {unit_of(plays) for plays in (team, solo)}
    if not all(costs) or len(units) > 1:
        return None
    budget = max(costs)
    ks = [budget / cost for cost in costs]
    rules = [PASS] + ([MAJORITY] if has_answers(team) and has_answers(solo) else [])
    return Equal(
        budget=budget,
        unit=units.pop(),
        plays={"team": ks[0], "solo": ks[1]},
        is_short=any(k > form.num_plays + 1e-9 for k, form in zip(ks, forms, strict=True)),
        pairs={rule: _pair(*forms, rule) for rule in rules},
    )


class _Form:
    """The plays of one form, and what a play of each task takes."""

    def __init__(self, plays: Sequence[Play]) -> None:
        tasks = by_task(plays)
        self.num_plays = len(next(iter(tasks.values())))
        self.tokens = np.array([_tokens(some) for some in tasks.values()])
        self._plays = list(tasks.values())

    def curves(self, rule: str, most: int) -> Floats:
        """For each task what k plays reach, for k from 0 to `most` or to the last that there is."""
        ks = range(1, min(most, self.num_plays) + 1)
        if rule == PASS:
            return np.array([pass_curve(some)[: len(ks) + 1] for some in self._plays])
        votes = [vote_curve(some, ks) for some in self._plays]
        return np.array([[vote[k] for k in (0, *ks)] for vote in votes])


def _tokens(plays: Sequence[Play]) -> float:
    """Of one play; those that failed broke off too early to tell."""
    return mean([play.tokens for play in plays if play.reached is not None]
                or [play.tokens for play in plays])  # fmt: skip


def _pair(team: _Form, solo: _Form, rule: str) -> Pair:
    budget = max(team.tokens.mean(), solo.tokens.mean())
    ks = [budget / form.tokens.mean() for form in (team, solo)]
    curves = [
        form.curves(rule, math.ceil(k * SLACK) + 1)
        for form, k in zip((team, solo), ks, strict=True)
    ]
    values = [_at(rows, np.full(len(rows), k)) for rows, k in zip(curves, ks, strict=True)]
    first, second = (estimate(some.tolist()) for some in values)
    tokens = (team.tokens, solo.tokens)
    difference = _difference(values[0] - values[1], (first, second), curves, tokens)
    return Pair(first, second, difference)


def _difference(
    gained: Floats,
    ends: tuple[Estimate, Estimate],
    curves: Sequence[Floats],
    tokens: tuple[Floats, Floats],
) -> Estimate:
    """Where few tasks differ, resampling sees too little of chance; Newcombe's interval (1998),
    made of those of both, is then taken."""
    middle = float(gained.mean())
    _, counts = np.unique(gained, return_counts=True)
    if len(gained) - counts.max() < FEW:
        first, second = ends
        low = math.hypot(first.value - first.low, second.high - second.value)
        high = math.hypot(first.high - first.value, second.value - second.low)
        return Estimate(middle, max(-1.0, middle - low), min(1.0, middle + high))
    num = len(gained)
    drawn = np.random.default_rng(SEED).multinomial(num, np.full(num, 1 / num), NUM_RESAMPLES) / num
    costs = [drawn @ some for some in tokens]
    budget = np.maximum(*costs)
    found = [_at(drawn @ rows, budget / cost) for rows, cost in zip(curves, costs, strict=True)]
    low, high = np.quantile(found[0] - found[1], (0.025, 0.975))
    return Estimate(middle, min(middle, float(low)), max(middle, float(high)))


def _at(curves: Floats, ks: Floats) -> Floats:
    """Each row at its number of plays, or at the last one that it has."""
    last = curves.shape[1] - 1
    ks = np.minimum(ks, last)
    below = np.floor(ks).astype(int)
    above = np.minimum(below + 1, last)
    rows = np.arange(len(curves))
    part = ks - below
    found: Floats = (1 - part) * curves[rows, below] + part * curves[rows, above]
    return found
