"""The pool: frozen snapshots of policies, which of them is met, and which is let go."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pettingllms.config.league import Rule
from pettingllms.league.payoff import Payoff

SURE = 4
"""Games of the snapshot before that count beside the policy's own, while it has few."""
HARD = 2
"""Power of the share of games lost by which a prioritised draw weighs (Vinyals et al., 2019)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy as it was after a step. Its weights are elsewhere, under its name."""

    policy: str
    step: int
    version: int
    weight_hash: str = ""
    """Hash of the weights."""

    @property
    def name(self) -> str:
        """With a sign that no policy's name has."""
        return f"{self.policy}@{self.step}"


def draw(
    rule: Rule, pool: Sequence[Snapshot], learner: str, payoff: Payoff, rng: random.Random
) -> Snapshot:
    """An opponent for the learner."""
    if rule == "latest":
        return pool[-1]
    return rng.choices(pool, draw_weights(rule, pool, learner, payoff))[0]


def draw_weights(rule: Rule, pool: Sequence[Snapshot], learner: str, payoff: Payoff) -> list[float]:
    """How likely each snapshot is, up to a factor."""
    if rule == "uniform":
        return [1.0] * len(pool)
    weights = [(1 - expected_score(s.name, pool, learner, payoff)) ** HARD for s in pool]
    return weights if any(weights) else [1.0] * len(pool)


def expected_score(opponent: str, pool: Sequence[Snapshot], learner: str, payoff: Payoff) -> float:
    """What the learner will score: its games since its last snapshot, and that one's as a prior."""
    last = next((s.name for s in reversed(pool) if s.policy == learner), None)
    before = payoff.between(last, opponent).score if last and last != opponent else 0.5
    now = payoff.between(learner, opponent)
    return (now.score * now.num_games + SURE * before) / (now.num_games + SURE)


def thinned(pool: Sequence[Snapshot], limit: int) -> list[Snapshot]:
    """At most so many snapshots, still spanning the run: those with close neighbours go first.

    The first and the newest of a policy stay as long as there is another to let go.
    """
    kept = list(pool)
    while len(kept) > limit:
        inner = [s for s in kept if _room(kept, s) is not None]
        goes = min(inner, key=lambda s: (_room(kept, s) or 0, s.step)) if inner else kept[0]
        kept.remove(goes)
    return kept


def _room(pool: Sequence[Snapshot], snapshot: Snapshot) -> int | None:
    """Steps between a snapshot's neighbours of the same policy; None at either end."""
    steps = [s.step for s in pool if s.policy == snapshot.policy]
    at = steps.index(snapshot.step)
    return steps[at + 1] - steps[at - 1] if 0 < at < len(steps) - 1 else None
