"""The pool of snapshots: which one is drawn as an opponent, and which one is removed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pettingllms.config.league import Rule
from pettingllms.league.payoff import Payoff

NUM_PRIOR_GAMES = 4
"""Weight of the last snapshot's score as a prior for the learner's, in games."""
LOSS_POWER = 2
"""Exponent of the share of lost games in a prioritized draw (Vinyals et al., 2019)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy after a step. Its weights are stored elsewhere, under its name."""

    policy: str
    step: int
    version: int
    weight_hash: str = ""
    """Hash of the weights."""

    @property
    def name(self) -> str:
        """POLICY@STEP; names of policies have no @."""
        return f"{self.policy}@{self.step}"


def draw(
    rule: Rule, pool: Sequence[Snapshot], learner: str, payoff: Payoff, rng: random.Random
) -> Snapshot:
    """Draw an opponent for the learner."""
    if rule == "latest":
        return pool[-1]
    return rng.choices(pool, draw_weights(rule, pool, learner, payoff))[0]


def draw_weights(rule: Rule, pool: Sequence[Snapshot], learner: str, payoff: Payoff) -> list[float]:
    """Unnormalized probability of each snapshot."""
    if rule == "uniform":
        return [1.0] * len(pool)
    weights = [(1 - expected_score(s.name, pool, learner, payoff)) ** LOSS_POWER for s in pool]
    return weights if any(weights) else [1.0] * len(pool)


def expected_score(opponent: str, pool: Sequence[Snapshot], learner: str, payoff: Payoff) -> float:
    """Expected score of the learner: its games since its last snapshot, which is the prior."""
    last = next((s.name for s in reversed(pool) if s.policy == learner), None)
    before = payoff.between(last, opponent).score if last and last != opponent else 0.5
    now = payoff.between(learner, opponent)
    return (now.score * now.num_games + NUM_PRIOR_GAMES * before) / (
        now.num_games + NUM_PRIOR_GAMES
    )


def thinned(pool: Sequence[Snapshot], limit: int) -> list[Snapshot]:
    """At most `limit` snapshots that still span the run; those with close neighbors are removed
    first.

    The first and the newest snapshot of a policy stay as long as there is another to remove.
    """
    kept = list(pool)
    while len(kept) > limit:
        inner = [s for s in kept if _span(kept, s) is not None]
        removed = min(inner, key=lambda s: (_span(kept, s) or 0, s.step)) if inner else kept[0]
        kept.remove(removed)
    return kept


def _span(pool: Sequence[Snapshot], snapshot: Snapshot) -> int | None:
    """Steps between a snapshot's neighbors of the same policy; None at either end."""
    steps = [s.step for s in pool if s.policy == snapshot.policy]
    at = steps.index(snapshot.step)
    return steps[at + 1] - steps[at - 1] if 0 < at < len(steps) - 1 else None
