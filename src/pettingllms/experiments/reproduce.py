"""An experiment from nothing to its table and figure, or from wherever it was left.

Each arm with each seed is a run in a folder of its own. What is done is done: the same command goes
on with what is missing, and another seed adds to the table of those that are there.
"""

import json
import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pettingllms.errors import ConfigError, ExperimentError
from pettingllms.experiments.experiment import Experiment, Model
from pettingllms.experiments.jobs import Job, Notify, run_jobs
from pettingllms.experiments.plan import (
    Order,
    Plan,
    PlannedArm,
    PlannedEvaluation,
    PlannedStart,
    make_plan,
)
from pettingllms.experiments.progress import Lines
from pettingllms.experiments.report import Found, collect, read_joined, shortfalls, write_report
from pettingllms.experiments.results import (
    BASIS,
    Evaluated,
    Result,
    asked,
    is_based_on,
    is_of,
    rows_of,
    training_of,
)
from pettingllms.experiments.runner import Machine
from pettingllms.experiments.scoring import Exploitability, measure
from pettingllms.models.folder import is_model
from pettingllms.preflight.machine import this_machine
from pettingllms.runs.folder import CONFIG_FILE, VERSIONS_FILE, RunFolder, write_whole
from pettingllms.types import read_episodes


def reproduce(
    order: Order, seeds: Sequence[int], machine: Machine, notify: Notify, num_at_once: int = 1
) -> list[str]:
    """Run what is missing, then write table and figure of all that is there.

    What fell short of its floor is given back, in words.
    """
    plans = [make_plan(order, seed) for seed in dict.fromkeys(seeds)]
    joined = read_joined(order, notify)
    jobs = [job for plan in plans for job in _jobs(order, plan, joined, machine, notify)]
    run_jobs(jobs, num_at_once, notify)
    found = collect(order, joined, notify)
    write_report(order, found, notify)
    return shortfalls(order, found, seeds)


def _jobs(order: Order, plan: Plan, joined: Found, machine: Machine, notify: Notify) -> list[Job]:
    """What is missing of a seed, here and in what was run elsewhere: models first, then arms."""
    basis = plan.basis(order.experiment.model)
    if not is_based_on(plan, basis):
        raise ConfigError(
            str(plan.folder),
            ["its models were made from another experiment.toml; remove it, or give --out"],
        )
    plan.folder.mkdir(parents=True, exist_ok=True)
    write_whole(plan.folder / BASIS, basis)
    results = {arm.spec.name: _begun(order, plan, arm) for arm in plan.arms}
    missing = [
        arm
        for arm in plan.arms
        if not _is_done(arm, results[arm.spec.name]) and not _is_elsewhere(arm, plan.seed, joined)
    ]
    notify(f"seed {plan.seed}: {len(plan.arms) - len(missing)} of {len(plan.arms)} arms are done")
    jobs = _models(order.experiment, plan, machine, notify) if missing else []
    for arm in missing:
        where = f"seed {plan.seed}, {arm.spec.name}"
        do = partial(_run_arm, arm, results[arm.spec.name], machine, where, notify)
        jobs.append(Job(where, do, plan.models_in(*arm.configs())))
    return jobs


def _models(experiment: Experiment, plan: Plan, machine: Machine, notify: Notify) -> list[Job]:
    """Models that are not there yet."""
    jobs = []
    if not is_model(plan.model):
        where = f"seed {plan.seed}, tiny model"
        do = partial(_make_model, experiment.model, plan, machine, where, notify)
        jobs.append(Job(where, do))
    for start in plan.starts:
        if not is_model(start.model):
            where = f"seed {plan.seed}, warm start '{start.spec.name}'"
            do = partial(_warm_start, start, machine, where, notify)
            jobs.append(Job(where, do, plan.models_in(start.config)))
    return jobs


def _run_arm(arm: PlannedArm, result: Result, machine: Machine, where: str, notify: Notify) -> None:
    """Train, unless that was done, and fill the cells that are empty."""
    if arm.spec.trained and result.training is None:
        _train(arm, result, machine, Lines(where, arm.config, notify))
    for cell in arm.evaluations:
        if not result.has(cell):
            _evaluate(arm, cell, result, machine, where, notify)


def _begun(order: Order, plan: Plan, arm: PlannedArm) -> Result:
    """The result so far; the run of another configuration is never gone on with."""
    folder = RunFolder(arm.folder)
    if not (arm.folder / CONFIG_FILE).is_file():
        folder.create(arm.config)
    elif not is_of(arm):
        raise ConfigError(
            str(arm.folder),
            [f"holds '{arm.spec.name}' with another configuration; remove it, or give --out"],
        )
    versions = json.loads((arm.folder / VERSIONS_FILE).read_text(encoding="utf-8"))
    command = f"{order.command} --seed {plan.seed}"
    result = Result.read(arm.folder) or Result(
        arm.spec.name, plan.seed, command, this_machine(), versions
    )
    if arm.spec.trained and result.training is None:
        result.evaluations.clear()  # of the models as they were
    if not arm.spec.trained and result.training is not None:
        wrong = f"holds '{arm.spec.name}' after training, and it is to be evaluated untrained"
        raise ConfigError(
            str(arm.folder), [f"{wrong}; set trained = true, remove the folder, or give --out"]
        )
    return result


def _is_elsewhere(arm: PlannedArm, seed: int, joined: Found) -> bool:
    """Whether an arm that was not begun here is joined, with every number that is asked for."""
    found = joined.find(arm.spec.name, seed)
    return found is not None and _is_done(arm, found) and Result.read(arm.folder) is None


def _is_done(arm: PlannedArm, result: Result) -> bool:
    trained = result.training is not None or not arm.spec.trained
    return trained and all(result.has(cell) for cell in arm.evaluations)


def _make_model(model: Model, plan: Plan, machine: Machine, where: str, notify: Notify) -> None:
    notify(f"{where}: making it")
    part = _part(plan.model)
    machine.make_model(model, plan.envs(), plan.seed, part)
    part.rename(plan.model)


def _warm_start(start: PlannedStart, machine: Machine, where: str, notify: Notify) -> None:
    player = start.config.sft.player if start.config.sft else ""
    notify(f"{where}: imitating {player or 'episodes'}")
    folder = RunFolder(start.folder)
    if not (start.folder / CONFIG_FILE).is_file():
        folder.create(start.config, supervised=True)
    part = _part(start.model)
    machine.warm_start(start.config, folder, part, Lines(where, start.config, notify))
    part.rename(start.model)


def _part(model: Path) -> Path:
    """Where a model is made, so that nobody begins with half of it."""
    part = model.with_name(f".{model.name}")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    return part


def _train(arm: PlannedArm, result: Result, machine: Machine, lines: Lines) -> None:
    lines.on_message("training")
    machine.train(arm.config, RunFolder(arm.folder), lines)
    training = training_of(rows_of(arm.folder))
    if not arm.config.train.is_over(training.num_steps, training.num_tokens):
        raise ExperimentError(
            f"'{arm.spec.name}' was stopped after step {training.num_steps}; the same command goes "
            "on from there"
        )
    result.training = training
    result.write(arm.folder)


def _played(arm: PlannedArm, cell: PlannedEvaluation, result: Result) -> Path | None:
    """The plays of another column, if they are what this one would play again to the letter."""
    same = (one for one in arm.evaluations if one.config == cell.config and result.has(one))
    return None if cell.config.eval.exploitability else next((one.out for one in same), None)


def _evaluate(
    arm: PlannedArm,
    cell: PlannedEvaluation,
    result: Result,
    machine: Machine,
    where: str,
    notify: Notify,
) -> None:
    start = time.monotonic()
    played = _played(arm, cell, result)
    exploitability: Exploitability = {}
    if played is None:
        notify(f"{where}: evaluating '{cell.spec.name}'")
        run, told = RunFolder(arm.folder) if arm.spec.trained else None, f"{where}: "
        exploitability = machine.evaluate(
            cell.config, run, cell.out, lambda text: notify(told + text)
        )
    seconds = time.monotonic() - start
    episodes = list(read_episodes(played or cell.out))
    asks = cell.spec.measure, cell.spec.metric
    found = measure(episodes, exploitability, cell.config, cell.role, *asks)
    failed = f", {found.num_failed} of {found.num_plays} plays failed" if found.num_failed else ""
    notify(f"{where}: '{cell.spec.name}' {found.value:.3f}{failed}")
    result.evaluations[cell.spec.name] = Evaluated(asked(cell), found, seconds)
    result.write(arm.folder)
