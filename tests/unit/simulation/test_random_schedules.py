"""Whole simulated runs on random schedules: engines, learners and failures at random speeds.

What the run decides is decided by the classes that training uses.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.config import RunConfig, parse_config
from pettingllms.policies import plan_models
from pettingllms.simulation.assumptions import Assumptions
from pettingllms.simulation.engine import Engine, Request
from pettingllms.simulation.report import num_warmup, report_of
from pettingllms.simulation.run import SimulatedRun, SimulatedStep
from pettingllms.simulation.speeds import (
    EngineSpeed,
    LearnerSpeed,
    LoopSpeed,
    ModelSpeeds,
    PublishSpeed,
    Speeds,
)
from pettingllms.simulation.workload import make_workload

NUM_STEPS = 7
DEBATERS = 3
"""Roles of the environment."""


@dataclass(frozen=True)
class Schedule:
    """A run whose sizes and speeds are random."""

    level: str
    """Level of the team: L0, L2 or L3."""
    engine: str
    algorithm: str
    num_tasks: int
    num_samples: int
    max_staleness: int
    num_replicas: int
    num_slots: int
    capacity: float
    sigma: float
    train_seconds: float
    publish: PublishSpeed
    mtbf_hours: float
    slow_share: float
    concurrent_learners: bool
    total_tasks: int
    seed: int


publications = st.builds(
    PublishSpeed,
    seconds=st.sampled_from([0.0, 3.0]),
    check=st.sampled_from([0.0, 1.0]),
    drains=st.booleans(),
).flatmap(
    lambda one: st.just(one) if one.drains else st.sampled_from(
        [one, PublishSpeed(one.seconds, one.check, pauses=True)]
    )
)  # fmt: skip
schedules = st.builds(
    Schedule,
    level=st.sampled_from(["L0", "L2", "L3"]),
    engine=st.sampled_from(["vllm", "vllm", "torch"]),
    algorithm=st.sampled_from(["grpo", "at_grpo"]),
    num_tasks=st.integers(1, 6),
    num_samples=st.integers(2, 4),
    max_staleness=st.integers(0, 4),
    num_replicas=st.integers(1, 4),
    num_slots=st.integers(1, 12),
    capacity=st.sampled_from([1.0, 3000.0, float("inf")]),
    sigma=st.sampled_from([0.0, 1.0, 2.0]),
    train_seconds=st.sampled_from([0.01, 5.0, 100.0]),
    publish=publications,
    mtbf_hours=st.sampled_from([0.0, 0.02, 1.0]),
    slow_share=st.sampled_from([0.0, 0.3]),
    concurrent_learners=st.booleans(),
    total_tasks=st.integers(1, 40),
    seed=st.integers(0, 10_000),
)


def config_of(plan: Schedule) -> RunConfig:
    names = ["shared"] if plan.level == "L0" else ["first", "second"]
    kind = "lora" if plan.level == "L2" else "full"
    policies = {
        name: {"kind": kind, "model": "m", "resources": {"num_replicas": plan.num_replicas}}
        for name in names
    }
    roles = {role: names[at % len(names)] for at, role in enumerate(("planner", "checker"))}
    config: dict[str, Any] = {
        "env": {"id": "plan_path-v1"},
        "algo": {"type": plan.algorithm},
        "policies": policies,
        "roles": roles,
        "rollout": {
            "num_tasks": plan.num_tasks,
            "num_samples": plan.num_samples,
            "max_staleness": plan.max_staleness,
            "max_reply_tokens": 1024,
        },
        "inference": {"engine": plan.engine, "max_num_seqs": plan.num_slots},
    }
    return parse_config(config)


def simulated(plan: Schedule) -> SimulatedRun:
    config = config_of(plan)
    assumed = Assumptions(
        prompt_tokens=100,
        turns=DEBATERS,
        reply_sigma=plan.sigma,
        mtbf_hours=plan.mtbf_hours,
        slow_share=plan.slow_share,
        slow_factor=5.0,
        engine_restart_seconds=20.0,
        learner_restart_seconds=30.0,
        num_tasks=plan.total_tasks,
    )
    model = ModelSpeeds(
        EngineSpeed(0.01, 0.02, 0.001, 1e-6, 1e-4, 0.1, 0.01, plan.capacity),
        LearnerSpeed(0.0, batch=plan.train_seconds),
        plan.publish,
    )
    loop = LoopSpeed(0.05, 0.001, 1.0, concurrent_learners=plan.concurrent_learners)
    speeds = Speeds({group.name: model for group in plan_models(config)}, {}, loop)
    work = make_workload(config, assumed, plan.seed)
    return SimulatedRun(config, speeds, work, assumed, plan.seed, NUM_STEPS)


@settings(max_examples=50, deadline=None)
@given(schedules)
def test_random_runs_keep_the_bound_whole_groups_tasks_and_fairness(plan: Schedule) -> None:
    check_run(plan)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(schedules)
def test_a_thousand_random_runs(plan: Schedule) -> None:
    check_run(plan)


def check_run(plan: Schedule) -> None:
    run = simulated(plan)
    admitted = {id(engine): watch(engine) for engine, _ in run.cluster.engines}
    watch_takes(run)
    run.run()  # raises SimulationError in a deadlock
    assert len(run.steps) == NUM_STEPS
    for step in run.steps:
        check_step(step, plan, run)
    check_passes(run)
    check_order(admitted, plan)


def check_step(step: SimulatedStep, plan: Schedule, run: SimulatedRun) -> None:
    assert max(step.ages, default=0) <= plan.max_staleness, "the bound is exceeded"
    for group in step.groups:
        for policy, version in group.versions:
            assert step.versions[policy] - version <= plan.max_staleness
        assert group.num_episodes == run.config.rollout.num_episodes, "a group is not whole"
        assert sum(group.versions.values()) == sum(w.num_replies for w in group.work.values())
    for group in step.dropped:
        oldest = max(step.versions[policy] - version for policy, version in group.versions)
        assert oldest > plan.max_staleness, "dropped although it was usable"
    most = min(plan.num_tasks, len(run.tasks))
    assert 0 < len(step.groups) <= most
    policies = run.config.trained_policies()
    assert set(step.versions.values()) == {step.number - 1}, "policies are updated alike"
    turns = Counter(
        policy for group in step.groups for (policy, _), n in group.versions.items()
        for _ in range(n)
    )  # fmt: skip
    replies = turns if plan.level == "L0" else {p: turns[p] * f for p, f in SHARE.items()}
    assert set(turns) == policies, "a policy has nothing to learn from"
    assert len(set(replies.values())) == 1, "policies have the same share in every batch"


SHARE = {"first": 1, "second": 2}
"""Of three turns per episode, the first policy has two."""


def check_passes(run: SimulatedRun) -> None:
    """Each number is trained on once, so each task at most once per pass."""
    numbers = [group.number for step in run.steps for group in step.groups]
    assert len(set(numbers)) == len(numbers)
    ids = Counter(group.task_id for step in run.steps for group in step.groups)
    assert max(ids.values()) <= -(-(max(numbers) + 1) // len(run.tasks))
    for step in run.steps:
        tasks = [group.task_id for group in step.groups]
        assert len(set(tasks)) == len(tasks), "a task occurs twice in a batch"


def watch(engine: Engine) -> list[int]:
    """The order in which an engine admits requests, by their order of arrival."""
    order: list[int] = []

    def note(request: Request) -> None:
        order.append(request.number)

    engine.admitted = note
    return order


def watch_takes(run: SimulatedRun) -> None:
    """Whenever groups are taken, all that have ended can be among them."""
    if (schedule := run._schedule) is None:
        return
    take = schedule.take

    def checked(versions: Any, count: int) -> Any:
        assert not run._ended, "a group that has ended is left out"
        return take(versions, count)

    schedule.take = checked  # type: ignore[method-assign]


def check_order(admitted: dict[int, list[int]], plan: Schedule) -> None:
    """No request overtakes another, whatever its policy, unless its engine was lost."""
    if plan.engine == "vllm" and not plan.mtbf_hours:
        for order in admitted.values():
            assert order == sorted(order), "a request was overtaken"


def test_a_report_counts_failures_of_measured_steps_only() -> None:
    plan = Schedule(
        "L0", "vllm", "grpo", 2, 2, 2, 2, 4, float("inf"), 1.0, 100.0, PublishSpeed(1.0), 0.05,
        0.0, True, 20, 1,
    )  # fmt: skip
    run = simulated(plan)
    failures: list[float] = []
    fail = run.cluster._fail

    def noted() -> None:
        failures.append(run.clock.now)
        fail()

    run.cluster._fail = noted  # type: ignore[method-assign]
    found = report_of(run.run())
    start = run.loads[num_warmup(run.config)].time
    # The first failure was scheduled before it could be noted.
    assert found.num_failures == sum(time > start for time in failures)
    assert 0 < found.num_failures < run.cluster.num_failures - 1


@given(schedules)
@settings(max_examples=30, deadline=None)
def test_a_simulation_repeats_exactly(plan: Schedule) -> None:
    first, second = simulated(plan).run(), simulated(plan).run()
    assert first.clock.now == second.clock.now
    assert [s.seconds for s in first.steps] == [s.seconds for s in second.steps]
