"""Train an experiment's verifiers, export policies of its arms, and report on the verifiers."""

import json
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pettingllms.experiments.jobs import Job, Notify
from pettingllms.experiments.plan import (
    ExperimentRequest,
    Plan,
    PlannedArm,
    PlannedVerifier,
    make_plan,
)
from pettingllms.experiments.runner import Machine
from pettingllms.judges.local_verifier import folder_problem
from pettingllms.models.folder import is_model
from pettingllms.runs.folder import RunFolder

REPORT = "report.json"
MEASURES = {
    "auc": "AUC",
    "auc_within": "AUC within questions",
    "accuracy": "accuracy",
    "brier": "Brier",
    "ece": "ECE",
    "num_answers": "held-out answers",
}


def verifier_jobs(plan: Plan, machine: Machine, notify: Notify) -> list[Job]:
    """Jobs for missing verifiers."""
    jobs = []
    for stage in plan.verifiers:
        if folder_problem(stage.model):
            where = f"seed {plan.seed}, verifier '{stage.spec.name}'"
            do = partial(_train_verifier, stage, machine, where, notify)
            jobs.append(Job(where, do, plan.models_in(stage.config)))
    return jobs


def _train_verifier(stage: PlannedVerifier, machine: Machine, where: str, notify: Notify) -> None:
    notify(f"{where}: collecting answers")
    stage.folder.mkdir(parents=True, exist_ok=True)
    part = part_folder(stage.model)
    machine.train_verifier(
        stage.config, stage.folder, part, lambda text: notify(f"{where}: {text}")
    )
    part.rename(stage.model)


def export_policies(arm: PlannedArm, machine: Machine, where: str, notify: Notify) -> None:
    """Write the policies of a trained arm that other arms play with."""
    for export in arm.exports:
        if not is_model(export.model):
            part = part_folder(export.model)
            run = RunFolder(arm.folder)
            machine.export(arm.config, run, export.spec.policy, part, notify)
            part.rename(export.model)
            notify(f"{where}: exported '{export.spec.policy}' as '{export.spec.name}'")


def part_folder(model: Path) -> Path:
    """Temporary folder of a model, so that an incomplete one is never used."""
    part = model.with_name(f".{model.name}")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    return part


def verifier_results(
    request: ExperimentRequest, seeds: Iterable[int]
) -> dict[str, dict[str, dict[str, Any]]]:
    """The reports on held-out answers, by verifier and seed."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for seed in sorted(seeds):
        for stage in make_plan(request, seed).verifiers:
            path = stage.folder / REPORT
            if path.is_file():
                report = json.loads(path.read_text(encoding="utf-8"))
                found.setdefault(stage.spec.name, {})[str(seed)] = report
    return found


def verifier_table(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """A section of the page, with one row per verifier and seed; empty without verifiers."""
    if not results:
        return ""
    rows = [["verifier", "seed", *MEASURES.values()], ["---"] * (2 + len(MEASURES))]
    for name, by_seed in results.items():
        for seed, report in by_seed.items():
            rows.append([name, seed, *(_shown(report[key]) for key in MEASURES)])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    about = (
        "Verifiers on held-out answers, as many right as wrong ones per question. Their questions "
        "occur neither in training of the arms nor in the evaluations."
    )
    return f"\n## Verifiers\n\n{about}\n\n{lines}\n"


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
