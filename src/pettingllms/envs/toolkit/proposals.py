"""Step metrics of environments in which a role proposes tasks.

An environment writes them, and a run computes validity, novelty and difficulty over whole batches
from them. Metrics are numbers, so a task is identified by a digest of its canonical form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pettingllms.seeds import derive_seed

Outcome = Literal["accepted", "invalid", "trivial", "duplicate", "held_out"]
OUTCOMES: tuple[Outcome, ...] = ("accepted", "invalid", "trivial", "duplicate", "held_out")
"""What may become of a proposal. `held_out`: it equals a task that is reserved for evaluation."""
PREFIX, PROPOSED, HELD_OUT = "proposal/", "proposed/", "held_out/"
DIGEST_BITS = 48
"""Bits of a digest; a float holds 53 exactly."""


@dataclass(frozen=True, slots=True)
class SolvedTask:
    """A task, its measured difficulty, and the share of solvers that solved it."""

    level: int
    solve_rate: float
    task: float
    """Digest of the canonical form."""
    answer: float
    """Digest of the correct answer."""


def digest(text: str) -> float:
    """A digest of a text as a number that a metric can hold."""
    return float(derive_seed("proposal", text) % 2**DIGEST_BITS)


def outcome_metrics(counts: Mapping[Outcome, int]) -> dict[str, float]:
    """Metrics of the step in which tasks were proposed: the number of each outcome."""
    return {PREFIX + outcome: float(counts.get(outcome, 0)) for outcome in OUTCOMES}


def outcomes_of(metrics: Mapping[str, float]) -> dict[Outcome, int]:
    """Counts by outcome; empty if no task was proposed in the step."""
    if PREFIX + OUTCOMES[0] not in metrics:
        return {}
    return {outcome: int(metrics[PREFIX + outcome]) for outcome in OUTCOMES}


def solved_metrics(solved: SolvedTask, prefix: str) -> dict[str, float]:
    """Metrics of the step in which a task was solved. `prefix` is PROPOSED or HELD_OUT."""
    return {
        f"{prefix}level": float(solved.level),
        f"{prefix}solve_rate": solved.solve_rate,
        f"{prefix}task": solved.task,
        f"{prefix}answer": solved.answer,
    }


def solved_in(metrics: Mapping[str, float], prefix: str) -> SolvedTask | None:
    """The task that was solved in a step; None if there was none of this kind."""
    if f"{prefix}task" not in metrics:
        return None
    return SolvedTask(
        level=int(metrics[f"{prefix}level"]),
        solve_rate=metrics[f"{prefix}solve_rate"],
        task=metrics[f"{prefix}task"],
        answer=metrics[f"{prefix}answer"],
    )
