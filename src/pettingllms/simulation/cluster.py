"""The simulated processes of a run: engines and learners, weights published between them, and their
failures."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pettingllms.config import RunConfig
from pettingllms.policies import (
    ModelGroup,
    critic_resources,
    group_resources,
    plan_critics,
    plan_models,
)
from pettingllms.registry import ENGINES
from pettingllms.rollouts.routing import replica_of
from pettingllms.seeds import derive_seed
from pettingllms.simulation.assumptions import Assumptions
from pettingllms.simulation.clock import Clock, Countdown, Event, Process
from pettingllms.simulation.engine import Engine
from pettingllms.simulation.learner import Learner
from pettingllms.simulation.lockstep import LockstepEngine
from pettingllms.simulation.speeds import Speeds


@dataclass(frozen=True, slots=True)
class Replicas:
    """The engines of one model, and its learner."""

    group: ModelGroup
    engines: Sequence[Engine]
    gpus_per_engine: int
    learner: Learner | None


class SimulatedCluster:
    """All processes of a run."""

    def __init__(
        self, clock: Clock, config: RunConfig, speeds: Speeds, assumed: Assumptions, seed: int
    ) -> None:
        self._clock = clock
        self._speeds = speeds
        self._assumed = assumed
        self._rng = random.Random(derive_seed(seed, "processes"))
        self.versions: dict[str, int] = {}
        """Version of each policy that learns."""
        self.models = {group.name: self._start(config, group) for group in plan_models(config)}
        self._model_of = {
            policy: model for model in self.models.values() for policy in model.group.policies
        }
        ranks = critic_resources(config).num_ranks
        self.critics = {plan.name: Learner(clock, ranks) for plan in plan_critics(config)}
        self.colocated = config.cluster.placement == "colocated"
        self.num_failures = 0
        self._next_failure()

    @property
    def engines(self) -> Iterable[tuple[Engine, int]]:
        """All engines, with their numbers of GPUs."""
        for model in self.models.values():
            for engine in model.engines:
                yield engine, model.gpus_per_engine

    @property
    def learners(self) -> list[Learner]:
        """All learners and critics."""
        own = [model.learner for model in self.models.values() if model.learner is not None]
        return [*own, *self.critics.values()]

    @property
    def num_engine_gpus(self) -> int:
        """GPUs of all engines."""
        return sum(num_gpus for _, num_gpus in self.engines)

    @property
    def num_learner_gpus(self) -> int:
        """GPUs of all learners and critics."""
        return sum(learner.num_gpus for learner in self.learners)

    def engine_of(self, policy: str, task_id: str) -> Engine:
        """The engine that answers for a policy in a task."""
        engines = self._model_of[policy].engines
        return engines[replica_of(task_id, len(engines))]

    def publish(self, model: Replicas, policies: Sequence[str]) -> Process:
        """Publish policies of one model, one after another."""
        speed = self._speeds.models[model.group.name].publish
        for policy in policies:
            self.versions[policy] += 1
            yield from self._ready(model.engines, drains=speed.drains)
            yield speed.seconds
            for engine in model.engines:
                if speed.pauses:
                    engine.replace(policy, self.versions[policy], speed.seconds)
                else:
                    engine.load(policy, self.versions[policy])
                if speed.drains:
                    engine.reopen()
            yield speed.check

    def _ready(self, engines: Sequence[Engine], drains: bool) -> Process:
        """Wait until engines can take new weights."""
        ready = Countdown(len(engines))
        for engine in engines:
            event = engine.drain() if drains else engine.when_up()
            event.then(ready.count)
        yield ready

    def _start(self, config: RunConfig, group: ModelGroup) -> Replicas:
        own, speed = group_resources(config, group), self._speeds.models[group.name]
        is_lockstep = ENGINES.load(config.inference.engine).capabilities.lockstep
        kind = LockstepEngine if is_lockstep else Engine
        slots = config.inference.max_num_seqs
        engines = [kind(self._clock, speed.engine, slots, self._slowness()) for _ in
                   range(own.num_replicas)]  # fmt: skip
        self.versions |= dict.fromkeys(group.trained, 0)
        for engine in engines:
            engine.versions |= dict.fromkeys(group.trained, 0)
        learner = Learner(self._clock, own.num_ranks) if group.trained else None
        return Replicas(group, engines, own.tensor_parallel, learner)

    def _slowness(self) -> float:
        is_slow = self._rng.random() < self._assumed.slow_share
        return self._assumed.slow_factor if is_slow else 1.0

    def _next_failure(self) -> None:
        num_gpus = self.num_engine_gpus + self.num_learner_gpus
        if self._assumed.mtbf_seconds:
            mean = self._assumed.mtbf_seconds / num_gpus
            self._clock.after(self._rng.expovariate(1 / mean), self._fail)

    def _fail(self) -> None:
        """Lose the process of a random GPU."""
        self.num_failures += 1
        place = self._rng.randrange(self.num_engine_gpus + self.num_learner_gpus)
        for engine, num_gpus in self.engines:
            if place < num_gpus:
                engine.fail(self._assumed.engine_restart_seconds)
                break
            place -= num_gpus
        else:
            for learner in self.learners:
                if place < learner.num_gpus:
                    learner.fail(self._assumed.learner_restart_seconds)
                    break
                place -= learner.num_gpus
        self._next_failure()


def all_of(clock: Clock, processes: Iterable[Process]) -> Event:
    """The end of several processes that run at the same time."""
    ends = [clock.start(process) for process in processes]
    done = Countdown(len(ends))
    for end in ends:
        end.then(done.count)
    return done
