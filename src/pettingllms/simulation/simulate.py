"""Answers of the simulator: a configuration as it is, and the best division of the GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pettingllms.config import RunConfig
from pettingllms.errors import ClusterError
from pettingllms.policies import plan_models
from pettingllms.preflight.hardware import Hardware
from pettingllms.preflight.model_size import ModelSize
from pettingllms.preflight.sizing import find_layout, read_sizes
from pettingllms.simulation.assumed_speeds import assumed_speeds
from pettingllms.simulation.assumptions import Assumptions
from pettingllms.simulation.calibration import Calibration, calibrated_speeds
from pettingllms.simulation.placements import Placement, Placements, Tried, best_split
from pettingllms.simulation.report import Report, num_warmup, report_of
from pettingllms.simulation.run import SimulatedRun
from pettingllms.simulation.workload import Workload, make_workload

SEARCH_GPUS = 64
"""GPUs of the cluster that splits are searched on; a larger one is scaled down to it."""
SEARCH_STEPS = 3
NEAR_BEST = 0.95
"""Splits with at least this share of the best speed on the smaller cluster are finalists: each is
simulated on the whole cluster. On few GPUs they differ by less than chance."""
CONTEXT_GROUPS = 50
"""Groups that mean lengths are taken over."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is simulated."""

    config: RunConfig
    hardware: Hardware
    assumed: Assumptions = field(default_factory=Assumptions)
    seed: int = 0
    num_steps: int = 6
    """Steps that are measured, after the warm-up."""
    price: float | None = None
    """Dollars per GPU-hour."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Reports of a question."""

    as_given: Report | None
    """The placement of the configuration; None if it does not fit these GPUs."""
    missing: str
    """Why it does not fit."""
    best: Report | None = None
    """The best division among engines and learners that was found."""
    overrides: tuple[str, ...] = ()
    """Overrides of the configuration for it."""
    colocated: Report | None = None
    """Engines and learners on the same GPUs, synchronously; None if that does not fit."""
    num_tried: int = 0
    notes: tuple[str, ...] = ()


def simulate(question: Question, sizes: Mapping[str, ModelSize]) -> Report:
    """The report of a configuration with the placement that it has."""
    config, assumed = question.config, question.assumed
    work = make_workload(config, assumed, question.seed)
    speeds = assumed_speeds(config, question.hardware, sizes, assumed, mean_context(work))
    num_steps = question.num_steps + num_warmup(config)
    run = SimulatedRun(config, speeds, work, assumed, question.seed, num_steps).run()
    return report_of(run, question.price)


def simulate_here(question: Question, calibration: Calibration) -> Report:
    """The report of a configuration on the machine that a calibration was measured on."""
    config, assumed = question.config, replace(question.assumed, slow_share=0.0, mtbf_hours=0.0)
    speeds = calibrated_speeds(config, calibration)
    work = make_workload(config, assumed, question.seed, calibration.lengths)
    num_steps = question.num_steps + num_warmup(config)
    run = SimulatedRun(config, speeds, work, assumed, question.seed, num_steps).run()
    return report_of(run, question.price)


def answer(question: Question, search: bool = True) -> Answer:
    """Simulate a configuration as it is, and search for the best division of the GPUs."""
    config, hardware = question.config, question.hardware
    sizes = read_sizes(config)
    layout, missing = find_layout(config, hardware.num_nodes, hardware.gpus_per_node)
    as_given = simulate(question, sizes) if layout is not None else None
    notes = tuple(_notes(config))
    if not search:
        return Answer(as_given, missing, notes=notes)
    tried = search_splits(question, sizes)
    best, report = best_at_scale(question, sizes, tried)
    shared = Placements(config, hardware, sizes).colocated()
    return Answer(
        as_given,
        missing,
        report,
        tuple(best.overrides),
        None if shared is None else simulate(_synchronous(question, shared), sizes),
        len(tried),
        notes,
    )


def search_splits(question: Question, sizes: Mapping[str, ModelSize]) -> list[Tried]:
    """Divisions of the GPUs among engines and learners, the best first. On a large cluster they are
    tried on a part of it, with the same part of the tasks."""
    hardware = question.hardware
    small = _scaled_down(question)
    placements = Placements(small.config, small.hardware, sizes)
    if small.hardware != hardware and placements.separate(0.5) is None:
        small, placements = question, Placements(question.config, hardware, sizes)

    def attempt(placement: Placement) -> Tried:
        asked = replace(small, config=placement.config, num_steps=SEARCH_STEPS, price=None)
        found = simulate(asked, sizes)
        engines = found.engine_busy * found.engine_gpus
        return Tried(
            placement, found.tokens_per_second, engines, found.learner_busy * found.learner_gpus
        )

    return best_split(placements, attempt)


def _scaled_down(question: Question) -> Question:
    hardware, rollout = question.hardware, question.config.rollout
    factor = max(1, hardware.num_gpus // SEARCH_GPUS)
    num_nodes = max(1, hardware.num_nodes // factor)
    if num_nodes == hardware.num_nodes:
        return question
    num_tasks = max(1, rollout.num_tasks * num_nodes // hardware.num_nodes)
    smaller = question.config.model_copy(
        update={"rollout": rollout.model_copy(update={"num_tasks": num_tasks})}
    )
    return replace(question, config=smaller, hardware=replace(hardware, num_nodes=num_nodes))


def best_at_scale(
    question: Question, sizes: Mapping[str, ModelSize], tried: Sequence[Tried]
) -> tuple[Placement, Report]:
    """The fastest finalist on the whole cluster, with its report."""
    placements = Placements(question.config, question.hardware, sizes)
    fastest = max(one.tokens_per_second for one in tried)
    found = []
    for one in tried:
        whole = placements.separate(one.learner_share)
        if whole is not None and one.tokens_per_second >= NEAR_BEST * fastest:
            found.append((whole, simulate(replace(question, config=whole.config), sizes)))
    if not found:
        raise ClusterError("no division of these GPUs among engines and learners fits")
    return max(found, key=lambda pair: pair[1].tokens_per_second)


def _synchronous(question: Question, shared: Placement) -> Question:
    rollout = shared.config.rollout.model_copy(update={"max_staleness": 0})
    return replace(question, config=shared.config.model_copy(update={"rollout": rollout}))


def mean_context(work: Workload) -> float:
    """Mean tokens before a token of a reply."""
    asks = [
        ask
        for number in range(CONTEXT_GROUPS)
        for episode in work.group(number, 1)
        for decision in episode.decisions
        for ask in decision
    ]
    tokens = sum(ask.num_tokens for ask in asks)
    before = sum(n * (ask.prompt + n / 2) for ask in asks for n in ask.replies)
    return before / max(1, tokens)


def _notes(config: RunConfig) -> list[str]:
    """What the simulation leaves out of a configuration."""
    found = []
    rollout = config.rollout
    if rollout.type == "replay":
        found.append("replays of rollout.type = 'replay' are not simulated")
    if rollout.type == "tree" and rollout.continuation != "none":
        found.append("continuations of siblings (rollout.continuation) are not simulated")
    if rollout.max_resamples:
        found.append("further sampling (rollout.max_resamples) is not simulated")
    if config.train.eval_every:
        found.append("evaluations (train.eval_every) are not simulated")
    served = {name for group in plan_models(config) for name in group.policies}
    if others := sorted(config.played_policies() - served):
        found.append(f"policies without an engine reply at once: {', '.join(others)}")
    return found
