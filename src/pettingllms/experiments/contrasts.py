"""Planned contrasts: effects with two intervals, and their section of the results page.

The interval over seeds answers whether the difference would come out again with other seeds. The
one over tasks holds the trained models fixed and covers only the choice of test tasks.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pettingllms.experiments.difference import student
from pettingllms.experiments.experiment import Experiment
from pettingllms.experiments.preregistration import Contrast, Preregistration
from pettingllms.experiments.results import Result
from pettingllms.experiments.scoring import Measured
from pettingllms.experiments.table import NONE, interval, lines, signed

Interval = tuple[float, float]
EXPLAINED = (
    "Differences in percentage points for shares. Over seeds: Student's t over paired differences, "
    "one per seed. Over tasks: Student's t over test tasks of the mean difference over seeds, for "
    "these trained models only. No correction for multiple comparisons. Test tokens: sampled per "
    "answer, all votes of a majority included."
)


@dataclass(frozen=True, slots=True)
class Effect:
    """A planned contrast, measured."""

    claim: str
    arm: str
    minus: str
    evaluation: str
    minus_evaluation: str
    value: float
    over_seeds: Interval | None
    """95% interval; None with fewer than two different seeds."""
    over_tasks: Interval | None
    num_seeds: int
    tokens: tuple[float, float]
    """Test tokens per answer of both arms."""


def effects(preregistration: Preregistration, results: Sequence[Result]) -> list[Effect]:
    """The planned contrasts over planned seeds that have both arms."""
    planned = [one for one in results if one.seed in preregistration.seeds]
    found = (_effect(preregistration, contrast, planned) for contrast in preregistration.contrasts)
    return [one for one in found if one is not None]


def _effect(
    preregistration: Preregistration, contrast: Contrast, results: Sequence[Result]
) -> Effect | None:
    column, minus_column = preregistration.evaluations_of(contrast)
    of_arm, of_other = (
        _by_seed(results, contrast.arm, column),
        _by_seed(results, contrast.minus, minus_column),
    )
    seeds = sorted(of_arm.keys() & of_other.keys())
    if not seeds:
        return None
    gaps = [of_arm[seed].value - of_other[seed].value for seed in seeds]
    by_task = _task_means([(of_arm[seed], of_other[seed]) for seed in seeds])
    return Effect(
        contrast.claim,
        contrast.arm,
        contrast.minus,
        column,
        minus_column,
        value=statistics.fmean(gaps),
        over_seeds=student(gaps) if len(set(gaps)) > 1 else None,
        over_tasks=student(by_task) if len(set(by_task)) > 1 else None,
        num_seeds=len(seeds),
        tokens=(_tokens(of_arm, seeds), _tokens(of_other, seeds)),
    )


def _by_seed(results: Sequence[Result], arm: str, evaluation: str) -> dict[int, Measured]:
    return {
        result.seed: result.evaluations[evaluation].measured
        for result in results
        if result.arm == arm and evaluation in result.evaluations
    }


def _task_means(pairs: Sequence[tuple[Measured, Measured]]) -> list[float]:
    """Per task: the mean difference over seeds; empty unless all have the same tasks."""
    if len({measured.tasks for pair in pairs for measured in pair}) > 1 or not pairs[0][0].tasks:
        return []
    rows = [
        [
            None if a is None or b is None else a - b
            for a, b in zip(one.values, other.values, strict=True)
        ]
        for one, other in pairs
    ]
    columns = ([gap for gap in task if gap is not None] for task in zip(*rows, strict=True))
    return [statistics.fmean(gaps) for gaps in columns if gaps]


def _tokens(found: dict[int, Measured], seeds: Sequence[int]) -> float:
    return statistics.fmean(found[seed].tokens for seed in seeds)


def changed_seeds(preregistration: Preregistration, results: Sequence[Result]) -> list[int]:
    """Seeds whose runs started with another plan, or with none."""
    return sorted({one.seed for one in results if one.plan != preregistration.digest})


def planned_section(
    preregistration: Preregistration, experiment: Experiment, results: Sequence[Result]
) -> str:
    """The plan, whether the runs followed it, and its contrasts, as Markdown."""
    found = effects(preregistration, results)
    shares = {column.name: column.is_share for column in experiment.evaluations}
    rows = [
        ["claim", "contrast", "seeds", "difference", "over seeds", "over tasks", "test tokens"],
        ["---"] * 7,
        *(_row(effect, shares[effect.evaluation]) for effect in found),
    ]
    parts = ["## Planned contrasts", " ".join(_status(preregistration, experiment, results))]
    parts += [lines(rows), EXPLAINED] if found else ["No planned contrast has results yet."]
    return "\n\n".join([*parts, "\n".join(_plan(preregistration))])


def _row(effect: Effect, is_share: bool) -> list[str]:
    def named(arm: str, column: str) -> str:
        same = effect.evaluation == effect.minus_evaluation
        return arm if same else f"{arm} ({column})"

    first = named(effect.arm, effect.evaluation)
    second = named(effect.minus, effect.minus_evaluation)
    return [
        effect.claim,
        f"{first} − {second}",
        str(effect.num_seeds),
        signed(effect.value, is_share),
        interval(effect.over_seeds, is_share) or NONE,
        interval(effect.over_tasks, is_share) or NONE,
        f"{effect.tokens[0]:.1f} and {effect.tokens[1]:.1f}",
    ]


def _status(
    preregistration: Preregistration, experiment: Experiment, results: Sequence[Result]
) -> Iterator[str]:
    """Whether the results are planned and complete."""
    if changed := changed_seeds(preregistration, results):
        names = ", ".join(map(str, changed))
        yield f"**The plan changed after the runs** of seeds {names}: they are not planned results."
    else:
        day = preregistration.date
        yield f"Fixed on {day} in `plan.toml`, before the runs (digest {preregistration.digest})."
    whole = [
        seed
        for seed in preregistration.seeds
        if {arm.name for arm in experiment.arms} <= {r.arm for r in results if r.seed == seed}
    ]
    if len(whole) < len(preregistration.seeds):
        yield (
            f"**Partial: {len(whole)} of {len(preregistration.seeds)} planned seeds have every "
            "arm.**"
        )


def _plan(preregistration: Preregistration) -> Iterator[str]:
    """The plan's settings as a list."""
    yield f"- Primary evaluation: {preregistration.primary}"
    yield f"- Budget per trained arm: {preregistration.max_tokens:,} sampled tokens"
    yield f"- Settings: {preregistration.settings}"
    if preregistration.deviations:
        yield f"- Deviations: {preregistration.deviations}"
    for pilot in preregistration.pilots:
        seeds = ", ".join(map(str, pilot.seeds))
        last = pilot.first_task + pilot.num_tasks - 1
        yield (
            f"- Pilot, seeds {seeds}, test tasks {pilot.first_task} to {last}: {pilot.tried} "
            f"{pilot.found}"
        )
