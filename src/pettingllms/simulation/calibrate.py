"""Fits the speeds of a machine to finished runs.

The recorded episodes of each run are played by the simulator, which counts what engines and
learners did in each step. Speeds that are not negative are then fitted to the measured seconds.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pettingllms.config import RunConfig
from pettingllms.errors import ConfigError
from pettingllms.policies import plan_models
from pettingllms.simulation.assumptions import Assumptions
from pettingllms.simulation.calibration import (
    Calibration,
    FittedRun,
    check_calibratable,
    speeds_of,
)
from pettingllms.simulation.lockstep import LockstepEngine, PartWork
from pettingllms.simulation.recorded import RecordedStep, RecordedWork, recorded_steps
from pettingllms.simulation.run import SimulatedRun, SimulatedStep
from pettingllms.simulation.speeds import (
    EngineSpeed,
    LearnerSpeed,
    LoopSpeed,
    PublishSpeed,
    Speeds,
)
from pettingllms.simulation.workload import Ask, Lengths

Row = tuple[float, ...]
Floats = NDArray[np.float64]
NUM_SWEEPS, NUM_REWEIGHTED = 5_000, 15
SMALL = 0.01
"""Relative error below which steps count alike."""
READ_SHARE = 1 / 3
"""Time of a pass without gradients, as a share of one with them."""
PARTS = ("sampling", "learning", "publishing")
"""Parts of a step with their separate coefficients; all others are the driver's."""
VALUING = "valuing"
"""The part whose seconds follow from `READ_SHARE`."""
FIRST_GUESS = EngineSpeed(step=1e-3, call=1e-3)
QUIET = Assumptions(slow_share=0.0, mtbf_hours=0.0)


@dataclass(frozen=True, slots=True)
class Measured:
    """A run that speeds are fitted to."""

    name: str
    config: RunConfig
    steps: list[RecordedStep]

    @property
    def seconds_per_step(self) -> float:
        """Median seconds of a step."""
        return float(np.median([step.seconds["step"] for step in self.steps]))


@dataclass(frozen=True, slots=True)
class Done:
    """What was done in one simulated step."""

    parts: list[PartWork]
    num_turns: int
    num_episodes: int
    updates: list[tuple[int, int]]
    """Distinct tokens and replies of each policy that learned."""
    num_epochs: int
    num_minibatches: int
    num_reads: int
    """Passes without gradients over the batch."""

    @property
    def sampling(self) -> Row:
        """Amounts that the seconds of sampling depend on."""
        return (
            float(len(self.parts)),
            float(sum(part.num_steps for part in self.parts)),
            float(sum(part.num_tokens for part in self.parts)),
            float(sum(part.prompt_tokens for part in self.parts)),
            sum(part.num_reads for part in self.parts),
            float(self.num_turns + self.num_episodes),
        )

    @property
    def learning(self) -> Row:
        """Amounts that the seconds of learning depend on."""
        tokens, replies = (sum(column) for column in zip(*self.updates, strict=True))
        num_updates = self.num_epochs * self.num_minibatches * len(self.updates)
        passes = self.num_epochs + READ_SHARE * self.num_reads
        return float(num_updates), passes * tokens, float(self.num_epochs * replies)


@dataclass(frozen=True, slots=True)
class Pair:
    """A measured step, and what was done in it."""

    run: str
    step: RecordedStep
    done: Done


def fit_runs(runs: Sequence[tuple[Path, RunConfig]]) -> Calibration:
    """Fit speeds to run folders with their configurations."""
    measured = []
    for path, config in runs:
        check_calibratable(config, str(path))
        measured.append(Measured(path.name, config, recorded_steps(path)))
    models = {group.model for one in measured for group in plan_models(one.config)}
    if len(models) != 1:
        raise ConfigError("--calibrate", [f"runs of one model are needed, got {sorted(models)}"])
    calibration = _fit(models.pop(), measured)
    fitted = tuple(
        FittedRun(one.name, one.seconds_per_step, _seconds_per_step(one, calibration))
        for one in measured
    )
    return replace(calibration, runs=fitted)


def _fit(model: str, measured: Sequence[Measured]) -> Calibration:
    guess = Calibration(
        model,
        FIRST_GUESS,
        LearnerSpeed(token=0.0),
        PublishSpeed(0.0),
        _loop(worker=1e-4, step=0.0, turn=0.0),
        _lengths(measured),
    )
    pairs = [
        Pair(one.name, step, done)
        for one in measured
        for step, done in zip(one.steps, _played(one, speeds_of(one.config, guess))[1], strict=True)
    ]
    sampling = _fitted(pairs, "sampling", [pair.done.sampling for pair in pairs])
    learning = _fitted(pairs, "learning", [pair.done.learning for pair in pairs])
    updates = [(float(len(pair.done.updates)),) for pair in pairs]
    publishing = _fitted(pairs, "publishing", updates)
    driver = _fitted(pairs, "driver", [(1.0, float(pair.done.num_turns)) for pair in pairs])
    call, each_step, token, prefill, context, worker = sampling
    batch, per_token, per_reply = learning
    return replace(
        guess,
        engine=EngineSpeed(each_step, token=token, context=context, prefill=prefill, call=call),
        learner=LearnerSpeed(per_token, READ_SHARE * per_token, batch, reply=per_reply),
        publish=PublishSpeed(publishing[0]),
        loop=_loop(worker, *driver),
    )


def _loop(worker: float, step: float, turn: float) -> LoopSpeed:
    return LoopSpeed(0.0, worker, step, turn, num_workers=1, concurrent_learners=False)


def _seconds(step: RecordedStep, part: str) -> float:
    if part == "driver":
        others = sum(step.seconds[one] for one in PARTS) + step.seconds.get(VALUING, 0.0)
        return step.seconds["step"] - others
    return step.seconds[part]


def _played(one: Measured, speeds: Speeds) -> tuple[SimulatedRun, list[Done]]:
    """Play the recorded steps of a run; what was done in each."""
    groups = [group for step in one.steps for group in step.groups]
    run = SimulatedRun(
        one.config, speeds, RecordedWork(groups), QUIET, one.config.seed, len(one.steps)
    )
    engines = [e for e, _ in run.cluster.engines if isinstance(e, LockstepEngine)]
    learner = one.config.learner
    passes = learner.num_epochs, learner.num_minibatches, run.num_reads
    found: list[Done] = []

    def note(step: SimulatedStep) -> None:
        parts = [part for engine in engines for part in engine.works]
        for engine in engines:
            engine.works = []
        works: dict[str, tuple[int, int]] = {}
        for group in step.groups:
            for policy, work in group.work.items():
                tokens, replies = works.get(policy, (0, 0))
                works[policy] = tokens + work.num_tokens, replies + work.num_replies
        num_turns = sum(replies for _, replies in works.values())
        num_episodes = sum(group.num_episodes for group in step.groups)
        updates = [works[name] for name in sorted(one.config.trained_policies() & set(works))]
        found.append(Done(parts, num_turns, num_episodes, updates, *passes))

    run.on_step = note
    return run.run(), found


def _seconds_per_step(one: Measured, calibration: Calibration) -> float:
    run, _ = _played(one, speeds_of(one.config, calibration))
    return float(np.median([sum(step.seconds.values()) for step in run.steps]))


def _fitted(pairs: Sequence[Pair], part: str, rows: Sequence[Row]) -> list[float]:
    """Coefficients of the seconds of a part, none of them negative, with the least sum of absolute
    errors: a step that other programs slowed down counts little. Errors are relative to the mean
    of the run, so that runs count alike."""
    seconds: Floats = np.array([_seconds(pair.step, part) for pair in pairs])
    runs = np.array([pair.run for pair in pairs])
    means = {run: seconds[runs == run].mean() for run in set(runs.tolist())}
    scale: Floats = np.array([1 / max(1e-6, float(means[pair.run])) for pair in pairs])
    matrix: Floats = np.array(rows, dtype=float) * scale[:, None]
    target = seconds * scale
    weights = np.ones(len(target))
    found = np.zeros(matrix.shape[1])
    for _ in range(NUM_REWEIGHTED):
        found = _least_squares(matrix * weights[:, None], target * weights)
        weights = 1 / np.sqrt(np.maximum(SMALL, np.abs(matrix @ found - target)))
    return [float(value) for value in found]


def _least_squares(matrix: Floats, target: Floats) -> Floats:
    """The least-squares solution without negative values, by coordinate descent."""
    scales = np.maximum(1e-12, np.linalg.norm(matrix, axis=0))
    matrix = matrix / scales
    product, right = matrix.T @ matrix, matrix.T @ target
    found = np.zeros(len(scales))
    for _ in range(NUM_SWEEPS):
        before = found.copy()
        for at in range(len(found)):
            rest = right[at] - product[at] @ found + product[at, at] * found[at]
            found[at] = max(0.0, rest / max(1e-12, product[at, at]))
        if np.abs(found - before).max() <= 1e-9:
            break
    return np.asarray(found / scales)


def _lengths(measured: Sequence[Measured]) -> Lengths:
    """Lengths of prompts and replies over all runs."""
    asks: dict[int, list[tuple[Ask, int]]] = {}
    cut: list[int] = []
    ended: list[int] = []
    for one in measured:
        limit = one.config.rollout.max_reply_tokens
        for decisions in _episodes(one):
            before = 0
            for place, ask in enumerate(decisions):
                asks.setdefault(place, []).append((ask, before))
                before = ask.replies[0]
                for length in ask.replies:
                    (cut if length >= limit else ended).append(length)
    prompts = tuple(_prompt(asks[place]) for place in sorted(asks))
    median, sigma = fit_lognormal(ended, cut)
    return Lengths(prompts, median, sigma)


def _episodes(one: Measured) -> Iterator[list[Ask]]:
    for step in one.steps:
        for group in step.groups:
            for episode in group:
                yield [decision[0] for decision in episode.decisions]


def _prompt(asks: Sequence[tuple[Ask, int]]) -> tuple[float, float]:
    """Tokens of a prompt as a number and a share of the reply before it."""
    tokens = np.array([ask.prompt for ask, _ in asks], dtype=float)
    before = np.array([count for _, count in asks], dtype=float)
    if before.std() < 1e-9:
        return float(tokens.mean()), 0.0
    share = max(0.0, float(np.cov(tokens, before)[0, 1] / before.var(ddof=1)))
    return float(tokens.mean() - share * before.mean()), share


def fit_lognormal(ended: Sequence[int], cut: Sequence[int]) -> tuple[float, float]:
    """Median and sigma of the likeliest lognormal distribution of lengths, of which some are known
    and of others only that they are at least so long."""
    known, censored = np.log(np.array(ended or [1])), np.log(np.array(cut or [1]))
    points, counts = np.unique(censored, return_counts=True)
    best = (-math.inf, float(known.mean()), 1.0)
    centers: Floats = np.linspace(known.min(), known.max() + 8.0, 60)
    widths: Floats = np.linspace(0.02, 4.0, 60)
    for _ in range(4):
        for center in centers:
            for width in widths:
                chance = -np.log(width) - ((known - center) / width) ** 2 / 2
                tails = [math.erfc((p - center) / width / math.sqrt(2)) / 2 for p in points]
                tail = sum(n * math.log(max(t, 1e-300)) for n, t in zip(counts, tails, strict=True))
                total = (float(chance.sum()) if ended else 0.0) + (tail if cut else 0.0)
                best = max(best, (total, float(center), float(width)))
        step_c, step_w = (float(next(b - a for a, b in pairwise(v))) for v in (centers, widths))
        centers = np.linspace(best[1] - 2 * step_c, best[1] + 2 * step_c, 15)
        widths = np.linspace(max(0.01, best[2] - 2 * step_w), best[2] + 2 * step_w, 15)
    return math.exp(best[1]), best[2]
