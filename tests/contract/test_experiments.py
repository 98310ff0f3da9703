"""Every experiment that ships can run: its configurations load, with and without --quick."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from pettingllms.experiments import plan
from pettingllms.experiments.experiment import Experiment, load_experiment
from pettingllms.experiments.plan import ExperimentRequest, Plan, make_plan
from pettingllms.experiments.preregistration import Preregistration, load_preregistration
from pettingllms.experiments.report import collect as gather
from pettingllms.experiments.report import make_page, read_joined
from pettingllms.experiments.results import Result
from pettingllms.experiments.stage_jobs import verifier_table
from pettingllms.training.collect import collect

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(path.parent for path in (ROOT / "experiments").glob("*/experiment.toml"))


@pytest.fixture(autouse=True)
def named_models_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """To plan, and to let scripts play, takes no model."""
    monkeypatch.setattr(plan, "find_model", Path)


def plan_of(folder: Path, out: Path, quick: bool = False) -> Plan:
    experiment = load_experiment(folder)
    plan = None if quick else load_preregistration(folder, experiment)
    experiment = experiment.smoke_run() if quick else experiment
    request = ExperimentRequest(experiment, folder, out, "pettingllms reproduce", (), (), plan)
    return make_plan(request, 1)


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_it_can_be_planned_and_its_arms_roll_out(folder: Path, tmp_path: Path) -> None:
    for arm in plan_of(folder, tmp_path).arms:
        rollout = arm.config.rollout.model_copy(update={"num_tasks": 2})
        config = arm.config.model_copy(update={"rollout": rollout})
        summary = collect(config, tmp_path / arm.folder.name)
        assert summary.num_failed_turns == 0
        trains = arm.spec.trained or bool(arm.config.trained_policies())
        assert (summary.num_trained_turns > 0) == trains


def seeds_of_shipped(name: str) -> set[int]:
    numbers = ROOT / "docs" / "results" / name / "results.json"
    if not numbers.is_file():
        return set()
    return {one["seed"] for one in json.loads(numbers.read_text())["results"]}


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_quick_says_when_learning_is_broken(folder: Path, tmp_path: Path) -> None:
    arms = plan_of(folder, tmp_path, quick=True).arms
    experiment = load_experiment(folder)
    floors = experiment.quick.floors
    plan, shipped = load_preregistration(folder, experiment), seeds_of_shipped(folder.name)
    unfinished = plan is not None and not shipped.issuperset(plan.seeds)
    assert floors or experiment.model.name or unfinished, "only a tiny model learns in minutes"
    for floor in floors:
        (arm,) = (arm for arm in arms if arm.spec.name == floor.arm)
        assert floor.evaluation in [cell.spec.name for cell in arm.evaluations]


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_quick_has_something_to_draw(folder: Path) -> None:
    quick = load_experiment(folder).smoke_run()
    measured = {column.name for column in quick.evaluations}
    assert quick.figure.bars
    assert measured >= set(quick.figure.bars)


def test_mazes_are_compared_at_equal_cost(tmp_path: Path) -> None:
    arms = plan_of(ROOT / "experiments" / "plan_path", tmp_path).arms
    trained = [arm.config for arm in arms if arm.spec.trained]
    assert len({config.train.max_tokens for config in trained}) == 1
    assert all(config.train.max_tokens for config in trained)
    replies = {arm.config.env.max_rounds * len(arm.config.roles) for arm in arms}
    assert len(replies) == 1
    mazes = {repr(a.config.env.model_copy(update={"solo": 0, "max_rounds": 0})) for a in arms}
    assert len(mazes) == 1


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_arms_with_a_token_budget_end_at_the_same_point_of_the_schedule(
    folder: Path, tmp_path: Path
) -> None:
    """Arms take different numbers of steps for the same tokens, so the schedule goes by tokens."""
    for arm in plan_of(folder, tmp_path).arms:
        train, learner = arm.config.train, arm.config.learner
        if train.max_tokens is not None:
            assert learner.decay_steps == 0
            assert learner.decay_tokens in (0, train.max_tokens)


def test_the_experiment_in_the_guide_is_one() -> None:
    page = (ROOT / "docs" / "guides" / "write_experiment.md").read_text()
    text, plan = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    experiment = Experiment.model_validate(tomllib.loads(text))
    assert list(experiment.problems()) == []
    preregistration = Preregistration.model_validate(tomllib.loads(plan))
    arms = [*experiment.arms, experiment.arms[0].model_copy(update={"name": "one role, GRPO"})]
    both = experiment.model_copy(update={"arms": arms})
    assert list(preregistration.problems(both)) == []


def test_pages_of_results_are_those_of_the_experiments() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "results").glob("*.md")}
    assert pages == {folder.name for folder in EXPERIMENTS}


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_every_experiment_has_a_page_and_a_row_in_the_summary(folder: Path) -> None:
    page = (ROOT / "docs" / "results" / f"{folder.name}.md").read_text()
    head, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    assert f"pettingllms reproduce {folder.name}\n" in head
    assert [text.split("\n")[0] for text in sections] == ["Question", "Design", "Result", "Limits"]
    assert sections[0].partition("\n")[2].strip() == load_experiment(folder).question
    assert all(text.partition("\n")[2].strip() for text in sections)
    summary = (ROOT / "docs" / "results.md").read_text().split("\n## Summary\n")[1]
    row = f"\n| [`{folder.name}`](results/{folder.name}.md) |"
    assert summary.split("\n## ")[0].count(row) == 1


SHIPPED = sorted((ROOT / "docs" / "results").glob("*/results.json"))


OLDER = {path.parent.name for path in SHIPPED} - {"ledger_teams", "team_design"}
"""Whose numbers were made with other settings. Take a name out when its numbers are made again."""


@pytest.mark.parametrize("numbers", SHIPPED, ids=lambda path: path.parent.name)
def test_tables_that_ship_come_of_the_numbers_beside_them(numbers: Path) -> None:
    experiment = load_experiment(ROOT / "experiments" / numbers.parent.name)
    data = json.loads(numbers.read_text())
    results = [Result.from_json(one) for one in data["results"]]
    plan = load_preregistration(ROOT / "experiments" / numbers.parent.name, experiment)
    page = make_page(experiment, results, plan) + verifier_table(data.get("verifiers", {}))
    assert page == (numbers.parent / "table.md").read_text()


@pytest.mark.parametrize("numbers", SHIPPED, ids=lambda path: path.parent.name)
def test_numbers_that_ship_are_of_today_or_are_known_to_be_older(
    numbers: Path, tmp_path: Path
) -> None:
    name, said = numbers.parent.name, []
    folder = ROOT / "experiments" / name
    request = ExperimentRequest(load_experiment(folder), folder, tmp_path, "", joined=[numbers])
    gather(request, read_joined(request, said.append), pytest.fail)
    assert any("another configuration" in text for text in said) == (name in OLDER)
    page = (ROOT / "docs" / "results.md").read_text()
    (older,) = (line for line in page.splitlines() if line.startswith("**Older settings.**"))
    assert (f"`{name}`" in older) == (name in OLDER)


def test_debate_and_one_alone_have_the_same_cost(tmp_path: Path) -> None:
    arms = plan_of(ROOT / "experiments" / "debate", tmp_path).arms
    assert len({arm.config.train.max_tokens for arm in arms}) == 1
    assert {arm.config.env.num_rounds * len(arm.config.roles) for arm in arms} == {6}
    sums = {"solo": 0, "num_rounds": 0, "num_debaters": 0}
    assert len({repr(arm.config.env.model_copy(update=sums)) for arm in arms}) == 1


def test_proposed_and_generated_tasks_have_the_same_cost_and_test(tmp_path: Path) -> None:
    arms = plan_of(ROOT / "experiments" / "propose", tmp_path).arms
    assert len({arm.config.train.max_tokens for arm in arms}) == 1
    tasks = {repr(arm.config.env.model_copy(update={"proposes": False})) for arm in arms}
    assert len(tasks) == 1
    solvers = [arm.config.policies["solver"] for arm in arms]
    assert all(solver == solvers[0] for solver in solvers)
