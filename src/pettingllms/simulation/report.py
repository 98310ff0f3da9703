"""What a simulated run shows: utilization, staleness, speed, cost, and its bottleneck."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pettingllms.config import RunConfig
from pettingllms.simulation.assumptions import HOUR
from pettingllms.simulation.run import SimulatedRun, SimulatedStep

MANY_DROPPED = 0.1
UNEVEN = 0.3
"""Difference of busy shares that matters more than dropped groups."""
BALANCED = 0.08
"""Difference of busy shares up to which engines and learners are balanced."""
FEW_REPLIES = 4
"""Replies per engine below which decoding wastes most of a GPU."""
LONG_WAIT = 0.15
"""Share of a step in publishing, or in the driver, that is worth a change."""


@dataclass(frozen=True, slots=True)
class Report:
    """Numbers of the simulated steps after the warm-up."""

    num_gpus: int
    engine_gpus: int
    learner_gpus: int
    colocated: bool
    max_staleness: int
    num_steps: int
    seconds_per_step: float
    parts: dict[str, float]
    """Mean seconds per step of each part of the loop."""
    busy: float
    """Share of GPU time in which an engine decodes or a learner works."""
    engine_busy: float
    learner_busy: float
    replies_per_engine: float
    """Mean number of replies that an engine decodes at once, while it decodes any."""
    tokens_per_step: float
    tokens_per_second: float
    """Sampled tokens that were trained on."""
    staleness_mean: float
    staleness_max: int
    dropped_share: float
    """Groups that were too old, of all groups that were taken from the buffer."""
    gpu_hours_per_million: float
    """GPU-hours per million tokens."""
    num_failures: int
    price: float | None
    """Dollars per million tokens, if a price per GPU-hour was given."""
    bottleneck: str
    change: str

    @property
    def steps_per_hour(self) -> float:
        """Steps per hour."""
        return HOUR / self.seconds_per_step


def num_warmup(config: RunConfig) -> int:
    """Steps until engines and learners work as in the middle of a run."""
    return 1 + config.rollout.max_staleness


def report_of(run: SimulatedRun, price: float | None = None) -> Report:
    """The report of a run that has ended."""
    first = num_warmup(run.config)
    steps = run.steps[first:]
    load = run.loads[-1] - run.loads[first]
    cluster, count = run.cluster, len(steps)
    engine_gpus, learner_gpus = cluster.num_engine_gpus, cluster.num_learner_gpus
    num_gpus = max(engine_gpus, learner_gpus) if cluster.colocated else engine_gpus + learner_gpus
    ages: Counter[int] = sum((step.ages for step in steps), Counter())
    num_groups = sum(len(step.groups) + len(step.dropped) for step in steps)
    num_dropped = sum(len(step.dropped) for step in steps)
    tokens = sum(step.reply_tokens for step in steps)
    hours = num_gpus * load.time / HOUR / (tokens / 1e6)
    engine_busy = load.engine_seconds / (load.time * engine_gpus)
    learner_busy = load.learner_seconds / (load.time * max(1, learner_gpus))
    wide = sum(num for _, num in cluster.engines) / max(1, len(list(cluster.engines)))
    parts = _parts(steps)
    found = {
        "engine_busy": engine_busy,
        "learner_busy": learner_busy,
        "dropped_share": num_dropped / max(1, num_groups),
        "replies_per_engine": load.slot_seconds / max(1e-9, load.engine_seconds / wide),
    }
    bottleneck, change = _bottleneck(run.config, parts, load.time / count, **found)
    return Report(
        num_gpus=num_gpus,
        engine_gpus=engine_gpus,
        learner_gpus=learner_gpus,
        colocated=cluster.colocated,
        max_staleness=run.config.rollout.max_staleness,
        num_steps=count,
        seconds_per_step=load.time / count,
        parts=parts,
        busy=(load.engine_seconds + load.learner_seconds) / (load.time * num_gpus),
        tokens_per_step=tokens / count,
        tokens_per_second=tokens / load.time,
        staleness_mean=sum(age * num for age, num in ages.items()) / max(1, ages.total()),
        staleness_max=max(ages, default=0),
        gpu_hours_per_million=hours,
        num_failures=load.num_failures,
        price=None if price is None else price * hours,
        bottleneck=bottleneck,
        change=change,
        **found,
    )


def _parts(steps: Sequence[SimulatedStep]) -> dict[str, float]:
    names = list(dict.fromkeys(name for step in steps for name in step.seconds))
    return {name: sum(step.seconds.get(name, 0.0) for step in steps) / len(steps) for name in names}


def _bottleneck(
    config: RunConfig,
    parts: dict[str, float],
    seconds: float,
    engine_busy: float,
    learner_busy: float,
    dropped_share: float,
    replies_per_engine: float,
) -> tuple[str, str]:
    """The bottleneck in one sentence, and what to change."""
    staleness = config.rollout.max_staleness
    for part, what, change in (
        ("publishing", "publishing weights", "publish less often: raise rollout.num_tasks"),
        ("driver", "the driver", "raise rollout.num_tasks, so that a step has more work"),
    ):
        if parts[part] > LONG_WAIT * seconds:
            return f"Learners wait for {what}, {parts[part] / seconds:.0%} of a step.", change
    if not staleness:
        return _synchronous(config, parts, seconds, engine_busy)
    is_uneven = abs(engine_busy - learner_busy) > UNEVEN
    if dropped_share > MANY_DROPPED and not is_uneven:
        return (
            f"{dropped_share:.0%} of all groups are too old when they end, and are dropped.",
            f"set rollout.max_staleness={staleness + 1}, or lower rollout.max_reply_tokens",
        )
    if replies_per_engine < FEW_REPLIES and engine_busy > learner_busy:
        return (
            f"Engines decode only {replies_per_engine:.1f} replies at a time.",
            "raise rollout.num_tasks or rollout.num_samples, or use fewer GPUs",
        )
    shares = f"Engines are {engine_busy:.0%} busy, learners {learner_busy:.0%}"
    if engine_busy > learner_busy + BALANCED:
        change = "move GPUs from learners to engines, or add engines"
        return f"{shares}: engines are the bottleneck.", change
    if learner_busy > engine_busy + BALANCED:
        change = "move GPUs from engines to learners, or add ranks"
        return f"{shares}: learners are the bottleneck.", change
    return f"{shares}: they are balanced.", "nothing; more GPUs of both make it faster"


def _synchronous(
    config: RunConfig,
    parts: dict[str, float],
    seconds: float,
    engine_busy: float,
) -> tuple[str, str]:
    learning = parts["learning"] / seconds
    waiting = max(0.0, parts["sampling"] / seconds - engine_busy)
    overlap = "set rollout.max_staleness=1"
    if config.cluster.placement == "colocated":
        overlap = 'set cluster.placement="separate" and rollout.max_staleness=1'
    if waiting > learning:
        return (
            f"Engines wait for the longest replies, {waiting:.0%} of a step.",
            f"{overlap}, or lower rollout.max_reply_tokens",
        )
    if learning > 1 / 2:
        return f"Learning takes {learning:.0%} of a step, while engines wait.", overlap
    return f"Sampling takes {parts['sampling'] / seconds:.0%} of a step; learners wait.", overlap
