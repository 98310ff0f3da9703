"""Run an experiment and write its table and figure, resuming where it was interrupted.

Each arm and seed is a run in a separate folder. The same command runs only what is missing, and
another seed adds to the existing table.
"""

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pettingllms.errors import ConfigError, ExperimentError, nearest
from pettingllms.experiments.experiment import Experiment, Model
from pettingllms.experiments.jobs import Job, Notify, run_jobs
from pettingllms.experiments.plan import (
    ExperimentRequest,
    Plan,
    PlannedArm,
    PlannedEvaluation,
    PlannedStart,
    make_plan,
)
from pettingllms.experiments.preregistration import keep_digest
from pettingllms.experiments.report import Collected, collect, read_joined, shortfalls, write_report
from pettingllms.experiments.results import (
    BASIS,
    Evaluated,
    Result,
    cell_spec,
    has_same_config,
    is_based_on,
    read_metrics,
    training_cost,
)
from pettingllms.experiments.runner import Machine, ProgressLines
from pettingllms.experiments.scoring import Exploitability, measure
from pettingllms.experiments.stage_jobs import export_policies, part_folder, verifier_jobs
from pettingllms.models.folder import is_model
from pettingllms.preflight.machine import this_machine
from pettingllms.runs.folder import CONFIG_FILE, VERSIONS_FILE, RunFolder, write_whole
from pettingllms.types import read_episodes


def reproduce(
    request: ExperimentRequest,
    seeds: Sequence[int],
    machine: Machine,
    notify: Notify,
    num_at_once: int = 1,
    arms: Sequence[str] = (),
) -> list[str]:
    """Run what is missing, then write the table and figure of all results.

    With `arms`, only those run. Returns messages about missed floors.
    """
    known = [arm.name for arm in request.experiment.arms]
    if unknown := next((name for name in arms if name not in known), None):
        raise ConfigError("--arm", [f"no arm '{unknown}'; {nearest(unknown, known)}"])
    plans = [make_plan(request, seed) for seed in dict.fromkeys(seeds)]
    joined = read_joined(request, notify)
    jobs = [job for plan in plans for job in _jobs(request, plan, joined, machine, notify, arms)]
    run_jobs(jobs, num_at_once, notify)
    found = collect(request, joined, notify)
    write_report(request, found, notify)
    return shortfalls(request, found, seeds)


def _jobs(
    request: ExperimentRequest,
    plan: Plan,
    joined: Collected,
    machine: Machine,
    notify: Notify,
    arms: Sequence[str],
) -> list[Job]:
    """Jobs for missing models and arms of a seed that were not joined from elsewhere."""
    basis = plan.basis(request.experiment.model)
    if not is_based_on(plan, basis):
        raise ConfigError(
            str(plan.folder),
            ["its models were made with another experiment.toml; delete it, or set --out"],
        )
    plan.folder.mkdir(parents=True, exist_ok=True)
    write_whole(plan.folder / BASIS, basis)
    preregistration = request.preregistration
    digest = keep_digest(preregistration, plan.folder) if preregistration else ""
    results = {arm.spec.name: _load_or_create(request, plan, arm, digest) for arm in plan.arms}
    missing = [
        arm
        for arm in plan.arms
        if (not arms or arm.spec.name in arms)
        and not _is_done(arm, results[arm.spec.name])
        and not _is_elsewhere(arm, plan.seed, joined)
    ]
    num_wanted = len(arms) or len(plan.arms)
    notify(f"seed {plan.seed}: {num_wanted - len(missing)} of {num_wanted} arms are done")
    jobs = _models(request.experiment, plan, machine, notify) if missing else []
    for arm in missing:
        where = f"seed {plan.seed}, {arm.spec.name}"
        do = partial(_run_arm, arm, results[arm.spec.name], machine, where, notify)
        jobs.append(Job(where, do, plan.models_in(*arm.configs())))
    return jobs


def _models(experiment: Experiment, plan: Plan, machine: Machine, notify: Notify) -> list[Job]:
    """Jobs for missing models."""
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
    return [*jobs, *verifier_jobs(plan, machine, notify)]


def _run_arm(arm: PlannedArm, result: Result, machine: Machine, where: str, notify: Notify) -> None:
    """Train unless already done, and run the missing evaluations."""
    if arm.spec.trained and result.training is None:
        _train(arm, result, machine, ProgressLines(where, arm.config, notify))
    export_policies(arm, machine, where, notify)
    for cell in arm.evaluations:
        if not result.has(cell):
            _evaluate(arm, cell, result, machine, where, notify)


def _load_or_create(request: ExperimentRequest, plan: Plan, arm: PlannedArm, digest: str) -> Result:
    """The result so far; raise ConfigError for a run with another config."""
    folder = RunFolder(arm.folder)
    if not (arm.folder / CONFIG_FILE).is_file():
        folder.create(arm.config)
    elif not has_same_config(arm):
        raise ConfigError(
            str(arm.folder),
            [f"holds '{arm.spec.name}' with another configuration; delete it, or set --out"],
        )
    versions = json.loads((arm.folder / VERSIONS_FILE).read_text(encoding="utf-8"))
    command = f"{request.command} --seed {plan.seed}"
    result = Result.read(arm.folder) or Result(
        arm.spec.name, plan.seed, command, this_machine(), versions, plan=digest
    )
    if arm.spec.trained and result.training is None:
        result.evaluations.clear()  # they belong to the untrained model
    if not arm.spec.trained and result.training is not None:
        wrong = f"holds '{arm.spec.name}' after training, but trained = false"
        raise ConfigError(
            str(arm.folder), [f"{wrong}; set trained = true, delete the folder, or set --out"]
        )
    return result


def _is_elsewhere(arm: PlannedArm, seed: int, joined: Collected) -> bool:
    """Whether a joined result without a local run has all evaluations."""
    found = joined.find(arm.spec.name, seed)
    return found is not None and _is_done(arm, found) and Result.read(arm.folder) is None


def _is_done(arm: PlannedArm, result: Result) -> bool:
    trained = result.training is not None or not arm.spec.trained
    exported = all(is_model(one.model) for one in arm.exports)
    return trained and exported and all(result.has(cell) for cell in arm.evaluations)


def _make_model(model: Model, plan: Plan, machine: Machine, where: str, notify: Notify) -> None:
    notify(f"{where}: creating")
    part = part_folder(plan.model)
    machine.make_model(model, plan.envs(), plan.seed, part)
    part.rename(plan.model)


def _warm_start(start: PlannedStart, machine: Machine, where: str, notify: Notify) -> None:
    player = start.config.sft.player if start.config.sft else ""
    notify(f"{where}: SFT on {player or 'episodes'}")
    folder = RunFolder(start.folder)
    if not (start.folder / CONFIG_FILE).is_file():
        folder.create(start.config, supervised=True)
    part = part_folder(start.model)
    machine.warm_start(start.config, folder, part, ProgressLines(where, start.config, notify))
    part.rename(start.model)


def _train(arm: PlannedArm, result: Result, machine: Machine, lines: ProgressLines) -> None:
    lines.on_message("training")
    machine.train(arm.config, RunFolder(arm.folder), lines)
    training = training_cost(read_metrics(arm.folder))
    if not arm.config.train.is_over(training.num_steps, training.num_tokens):
        raise ExperimentError(
            f"'{arm.spec.name}' was stopped after step {training.num_steps}; run the same command "
            "to resume"
        )
    result.training = training
    result.write(arm.folder)


def _reusable_episodes(arm: PlannedArm, cell: PlannedEvaluation, result: Result) -> Path | None:
    """The episodes of another evaluation with an identical config, if done."""
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
    reused = _reusable_episodes(arm, cell, result)
    exploitability: Exploitability = {}
    if reused is None:
        notify(f"{where}: evaluating '{cell.spec.name}'")
        run, prefix = RunFolder(arm.folder) if arm.spec.trained else None, f"{where}: "
        exploitability = machine.evaluate(
            cell.config, run, cell.out, lambda text: notify(prefix + text)
        )
    seconds = time.monotonic() - start
    episodes = list(read_episodes(reused or cell.out))
    found = measure(
        episodes, exploitability, cell.config, cell.role, cell.spec.measure, cell.spec.metric
    )
    failed = (
        f", {found.num_failed} of {found.num_episodes} episodes failed" if found.num_failed else ""
    )
    notify(f"{where}: '{cell.spec.name}' {found.value:.3f}{failed}")
    result.evaluations[cell.spec.name] = Evaluated(cell_spec(cell), found, seconds)
    result.write(arm.folder)
