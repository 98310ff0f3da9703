"""Compare a team with a single role at equal tokens.

A team may win because it uses more tokens, not because of its roles. So both forms get the same
budget per task: the mean tokens of one episode of the more expensive form. The cheaper form gets as
many episodes as the budget covers. Both are scored by the same rule: `pass` (any episode succeeds,
which assumes a verifier such as a test suite) or `majority` (the most common answer is correct,
which needs none). A fractional number of episodes interpolates between its two neighbors, so the
expected tokens equal the budget.

Both forms have the same tasks, so differences are paired by task, and the confidence interval comes
from bootstrapping the tasks, including the budget.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pettingllms.algos.credit import mean
from pettingllms.evaluation.suites.scoring import (
    EpisodeScore,
    by_task,
    has_answers,
    pass_curve,
    token_unit,
    vote_curve,
)
from pettingllms.runs.scores import (
    FEW,
    NUM_RESAMPLES,
    SEED,
    Estimate,
    Floats,
    estimate,
    newcombe,
    num_outside_mode,
)

PASS, MAJORITY = "pass", "majority"
SLACK = 1.5
"""How many more episodes a budget may cover in a bootstrap sample."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Both forms under one rule, and the difference team minus solo."""

    team: Estimate
    solo: Estimate
    difference: Estimate


@dataclass(frozen=True, slots=True)
class Equal:
    """Team and solo at one budget."""

    budget: float
    """Tokens per task."""
    unit: str
    num_samples: dict[str, float]
    """By form: episodes per task that the budget covers."""
    is_short: bool
    """Whether the cheaper form has fewer episodes, so that its score is too low."""
    pairs: dict[str, Pair]
    """By rule."""

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def equal_from(data: dict[str, Any]) -> Equal:
    """The inverse of `to_json`."""
    pairs = {
        rule: Pair(**{name: Estimate(**one) for name, one in pair.items()})
        for rule, pair in data["pairs"].items()
    }
    return Equal(**{**data, "pairs": pairs})


def num_samples_for(
    team: Sequence[EpisodeScore], solo: Sequence[EpisodeScore], most: int
) -> tuple[int, int]:
    """Episodes per task of team and solo that use the same number of tokens."""
    numbers = [len(next(iter(by_task(scores).values()))) for scores in (team, solo)]
    used = [sum(one.tokens for one in scores) for scores in (team, solo)]
    if not all(used):
        return numbers[0], numbers[1]
    wanted = [math.ceil(n * max(used) / own) for n, own in zip(numbers, used, strict=True)]
    first, second = (max(n, min(most, w)) for n, w in zip(numbers, wanted, strict=True))
    return first, second


def compare(team: Sequence[EpisodeScore], solo: Sequence[EpisodeScore]) -> Equal | None:
    """Compare both forms; None if a form sampled no tokens or the units differ."""
    forms = (_Form(team), _Form(solo))
    costs = [float(form.tokens.mean()) for form in forms]
    units = {token_unit(scores) for scores in (team, solo)}
    if not all(costs) or len(units) > 1:
        return None
    budget = max(costs)
    ks = [budget / cost for cost in costs]
    rules = [PASS] + ([MAJORITY] if has_answers(team) and has_answers(solo) else [])
    return Equal(
        budget=budget,
        unit=units.pop(),
        num_samples={"team": ks[0], "solo": ks[1]},
        is_short=any(k > form.num_samples + 1e-9 for k, form in zip(ks, forms, strict=True)),
        pairs={rule: _pair(*forms, rule) for rule in rules},
    )


class _Form:
    """The scores of one form, and the tokens per episode of each task."""

    def __init__(self, scores: Sequence[EpisodeScore]) -> None:
        tasks = by_task(scores)
        self.num_samples = len(next(iter(tasks.values())))
        self.tokens = np.array([_tokens(some) for some in tasks.values()])
        self._scores = list(tasks.values())

    def curves(self, rule: str, most: int) -> Floats:
        """Per task: the score with k episodes, for k from 0 to `most` or the number available."""
        ks = range(1, min(most, self.num_samples) + 1)
        if rule == PASS:
            return np.array([pass_curve(some)[: len(ks) + 1] for some in self._scores])
        votes = [vote_curve(some, ks) for some in self._scores]
        return np.array([[vote[k] for k in (0, *ks)] for vote in votes])


def _tokens(scores: Sequence[EpisodeScore]) -> float:
    """Mean tokens per episode, without failed ones, which ended early."""
    return mean([one.tokens for one in scores if one.success is not None]
                or [one.tokens for one in scores])  # fmt: skip


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
    """The difference with its confidence interval. If few tasks differ, the bootstrap is too
    narrow, and Newcombe's interval (1998) is used."""
    middle = float(gained.mean())
    if num_outside_mode(gained) < FEW:
        return newcombe(middle, *ends)
    num = len(gained)
    drawn = np.random.default_rng(SEED).multinomial(num, np.full(num, 1 / num), NUM_RESAMPLES) / num
    costs = [drawn @ some for some in tokens]
    budget = np.maximum(*costs)
    found = [_at(drawn @ rows, budget / cost) for rows, cost in zip(curves, costs, strict=True)]
    low, high = np.quantile(found[0] - found[1], (0.025, 0.975))
    return Estimate(middle, min(middle, float(low)), max(middle, float(high)))


def _at(curves: Floats, ks: Floats) -> Floats:
    """Each row at its number of episodes, or at its last entry."""
    last = curves.shape[1] - 1
    ks = np.minimum(ks, last)
    below = np.floor(ks).astype(int)
    above = np.minimum(below + 1, last)
    rows = np.arange(len(curves))
    part = ks - below
    found: Floats = (1 - part) * curves[rows, below] + part * curves[rows, above]
    return found
