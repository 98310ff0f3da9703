"""Metrics of proposed tasks over a batch of episodes: validity, novelty, and the gap to held-out
tasks.

Proposer and solvers can agree on a code: tasks that look hard and that solvers answer without
skill. No single episode shows it. A batch does: few distinct tasks, one common answer, or more
success on proposed tasks than on held-out tasks of the same measured difficulty.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pettingllms.algos.credit import mean
from pettingllms.envs.toolkit.proposals import (
    HELD_OUT,
    PROPOSED,
    Outcome,
    SolvedTask,
    outcomes_of,
    solved_in,
)
from pettingllms.types import Episode

Rates = Mapping[int, Sequence[float]]
"""Solve rates of tasks, by measured difficulty."""
SHARES: Mapping[Outcome, str] = {
    "accepted": "accepted_share",
    "invalid": "invalid_share",
    "trivial": "trivial_share",
    "duplicate": "duplicate_share",
    "held_out": "held_out_share",
}
"""Names of metrics."""
MIN_COMPARED = 4
"""Tasks of one difficulty that each side of a comparison needs."""


def proposal_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Metrics of the tasks that were proposed in a batch; empty if no role proposes tasks."""
    counts: Counter[Outcome] = Counter()
    for episode in episodes:
        for step in episode.steps:
            counts.update(outcomes_of(step.metrics))
    if not counts:
        return {}
    found = {"num_proposals": float(counts.total())}
    found |= {name: counts[outcome] / counts.total() for outcome, name in SHARES.items()}
    tasks = _solved(episodes, PROPOSED)
    if tasks:
        answers = Counter(task.answer for task in tasks)
        found["novelty"] = len({task.task for task in tasks}) / len(tasks)
        found["common_answer_share"] = max(answers.values()) / len(tasks)
    return found | _rate_metrics("solve_rate", _by_level(tasks))


def held_out_metrics(evaluated: Sequence[Episode], trained: Sequence[Episode]) -> dict[str, float]:
    """Metrics of an evaluation on held-out tasks, compared with the tasks that the step before it
    proposed; empty if no role proposes tasks."""
    held_out = _by_level(_solved(evaluated, HELD_OUT))
    found = _rate_metrics("held_out_success", held_out)
    gap = matched_gap(_by_level(_solved(trained, PROPOSED)), held_out)
    return found if gap is None else {**found, "gap": gap}


def matched_gap(proposed: Rates, held_out: Rates) -> float | None:
    """Mean solve rate of proposed tasks minus that of held-out tasks of the same difficulty.

    Where too few held-out tasks have this difficulty, the next lower one with enough counts: it is
    easier, so the gap is underestimated. None if nothing can be compared.
    """
    measured = {level: mean(rates) for level, rates in held_out.items() if _enough(rates)}
    total, weight = 0.0, 0
    for level, rates in proposed.items():
        below = [other for other in measured if other <= level]
        if below and _enough(rates):
            total += len(rates) * (mean(rates) - measured[max(below)])
            weight += len(rates)
    return total / weight if weight else None


def _enough(rates: Sequence[float]) -> bool:
    return len(rates) >= MIN_COMPARED


def _solved(episodes: Iterable[Episode], prefix: str) -> list[SolvedTask]:
    """Each task once, with its mean solve rate: in trees, siblings answer the same task again."""
    found: list[SolvedTask] = []
    for episode in episodes:
        again: dict[tuple[int | None, float], list[SolvedTask]] = defaultdict(list)
        for at, step in enumerate(episode.steps):
            task = solved_in(step.metrics, prefix)
            if task is not None:
                again[_proposal_step(episode, at), task.task].append(task)
        found += map(_merged, again.values())
    return found


def _merged(same: Sequence[SolvedTask]) -> SolvedTask:
    return replace(same[0], solve_rate=mean([task.solve_rate for task in same]))


def _proposal_step(episode: Episode, at: int) -> int | None:
    """The step in which the tasks of this branch were proposed; None if there is none."""
    steps = (index for index in episode.path(at) if outcomes_of(episode.steps[index].metrics))
    return next(steps, None)


def _by_level(tasks: Sequence[SolvedTask]) -> Rates:
    rates: dict[int, list[float]] = defaultdict(list)
    for task in tasks:
        rates[task.level].append(task.solve_rate)
    return dict(sorted(rates.items()))


def _rate_metrics(name: str, rates: Rates) -> dict[str, float]:
    """The mean over all tasks, and per level."""
    if not rates:
        return {}
    everything = [rate for some in rates.values() for rate in some]
    return {name: mean(everything)} | {f"{name}_{at}": mean(some) for at, some in rates.items()}
