"""Several LoRA policies on one base against one policy, on the same prompts.

Each side is a whole run with its own engine and learner, on one Ray cluster. Both make steps in
turn, because machine speed drifts. Only the mapping of roles to policies differs. The measure is
CPU-seconds of all processes per sampled token, which other load on the machine changes less than
wall time.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pettingllms.bench.cpu_time import cpu_seconds
from pettingllms.bench.parallel_roles import ParallelRoles
from pettingllms.bench.sampling_bench import RANK
from pettingllms.cluster.start import ray_running
from pettingllms.config import RunConfig, parse_config
from pettingllms.config.engines import Dtype
from pettingllms.models import find_model
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.folder import RunFolder
from pettingllms.training.train import Trainer

REPLY_TOKENS = 64
NUM_SAMPLES = 8
"""Replies to each prompt."""
PHASES = ("sampling", "learning", "publishing")


@dataclass(frozen=True, slots=True)
class AdaptersBench:
    """CPU-milliseconds per sampled token of one policy and of several; medians over rounds."""

    model: str
    dtype: str
    num_policies: int
    num_replies: int
    repeats: int
    num_tokens: tuple[int, ...]
    """Sampled tokens of each side in all rounds: one policy, several policies."""
    one: Mapping[str, float]
    """By phase, and of the whole step."""
    several: Mapping[str, float]
    ratios: Mapping[str, tuple[float, ...]]
    """Several policies over one, by round."""
    ratio: Mapping[str, float]
    """The medians of the ratios."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one side did in a step."""

    num_tokens: int
    seconds: Mapping[str, float]
    """CPU-seconds by phase."""

    def cost(self, phase: str) -> float:
        """CPU-milliseconds per sampled token."""
        return 1000 * self.seconds[phase] / self.num_tokens


@dataclass(slots=True)
class PhaseClock(Callback):
    """Measures CPU time from phase to phase."""

    seconds: dict[str, float] = field(default_factory=dict)
    _phase: str = ""
    _start: float = 0.0

    def on_phase(self, text: str) -> None:
        self.stop()
        self._phase, self._start = text, cpu_seconds()

    def stop(self) -> None:
        """End the phase."""
        if self._phase:
            self.seconds[self._phase] = cpu_seconds() - self._start
        self._phase = ""


def bench_adapters(
    model: str,
    dtype: Dtype = "float32",
    num_policies: int = 8,
    repeats: int = 3,
    phase: Callable[[str], None] = lambda _: None,
) -> AdaptersBench:
    """Train one policy and several in turn. `phase` gets a description of each round."""
    folder = find_model(model)
    sides = [run_config(folder, dtype, num_policies, count) for count in (1, num_policies)]
    with ray_running(sides[0].cluster), tempfile.TemporaryDirectory() as out:
        rounds = asyncio.run(_rounds(sides, Path(out), repeats, phase))
    return summary(folder.name, dtype, num_policies, rounds)


def run_config(model: Path, dtype: Dtype, num_roles: int, num_policies: int) -> RunConfig:
    """A run of as many roles, which several policies or one take."""
    names = [f"policy{at}" for at in range(num_policies)]
    policy = {"kind": "lora", "model": str(model), "rank": RANK}
    return parse_config(
        {
            "env": {"id": ParallelRoles.id, "num_roles": num_roles},
            "algo": {"type": "grpo"},
            "policies": dict.fromkeys(names, policy),
            "roles": {f"role{at}": names[at % num_policies] for at in range(num_roles)},
            "rollout": {
                "num_tasks": 1,
                "num_samples": NUM_SAMPLES,
                "max_reply_tokens": REPLY_TOKENS,
            },
            "inference": {
                "dtype": dtype,
                "max_num_seqs": num_roles * NUM_SAMPLES,
                "max_model_len": 512,
            },
            "learner": {"dtype": dtype},
            "cluster": {"device": "cpu"},
            "log": {"episodes": False},
        },
        "bench adapters",
    )


async def _rounds(
    sides: Sequence[RunConfig], folder: Path, repeats: int, phase: Callable[[str], None]
) -> list[tuple[Round, ...]]:
    clocks = [PhaseClock() for _ in sides]
    trainers = [
        Trainer(side, _run_folder(folder / str(at), side), clock)
        for at, (side, clock) in enumerate(zip(sides, clocks, strict=True))
    ]
    rounds: list[tuple[Round, ...]] = []
    try:
        for trainer in trainers:
            phase("starting engines and learners")
            await trainer.start()
        for number in range(repeats + 1):
            phase(f"round {number} of {repeats}")
            order = [0, 1] if number % 2 else [1, 0]
            found = {at: await _round(trainers[at], clocks[at]) for at in order}
            rounds.append(tuple(found[at] for at in sorted(found)))
    finally:
        for trainer in trainers:
            await trainer.stop()
    return rounds[1:]


def _run_folder(path: Path, config: RunConfig) -> RunFolder:
    folder = RunFolder(path)
    folder.create(config)
    return folder


async def _round(trainer: Trainer, clock: PhaseClock) -> Round:
    """One step, as in `training.train`."""
    step = trainer.begin_step()
    await trainer.sample(step)
    clock.stop()
    trainer.credit(step)
    learned = await trainer.learn(step)
    await trainer.publish(step, learned)
    clock.stop()
    await trainer.record(step)
    seconds = {phase: clock.seconds[phase] for phase in PHASES}
    num_tokens = sum(turn.num_tokens for episode in step.episodes for turn in episode.turns)
    return Round(num_tokens, {**seconds, "step": sum(seconds.values())})


def summary(
    model: str, dtype: str, num_policies: int, rounds: Sequence[tuple[Round, ...]]
) -> AdaptersBench:
    """Medians over the rounds."""
    costs = {p: [tuple(side.cost(p) for side in one) for one in rounds] for p in (*PHASES, "step")}
    ratios = {
        phase: tuple(round(several / one, 3) for one, several in some)
        for phase, some in costs.items()
    }
    one, several = (
        {p: round(statistics.median(pair[at] for pair in some), 2) for p, some in costs.items()}
        for at in range(2)
    )
    return AdaptersBench(
        model=model,
        dtype=dtype,
        num_policies=num_policies,
        num_replies=num_policies * NUM_SAMPLES,
        repeats=len(rounds),
        num_tokens=tuple(sum(one[at].num_tokens for one in rounds) for at in range(2)),
        one=one,
        several=several,
        ratios=ratios,
        ratio={phase: statistics.median(some) for phase, some in ratios.items()},
    )
