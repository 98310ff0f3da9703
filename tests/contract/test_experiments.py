"""Every experiment that ships can run: its configurations load, with and without --quick."""

import re
import tomllib
from pathlib import Path

import pytest

from pettingllms.collect import collect
from pettingllms.experiments import plan
from pettingllms.experiments.plan import Order, Plan, make_plan
from pettingllms.experiments.report import collect as gather
from pettingllms.experiments.report import read_joined
from pettingllms.experiments.spec import Experiment, load_experiment
from pettingllms.experiments.table import make_table

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(path.parent for path in (ROOT / "experiments").glob("*/experiment.toml"))


@pytest.fixture(autouse=True)
def named_models_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """To plan, and to let scripts play, takes no model."""
    monkeypatch.setattr(plan, "find_model", Path)


def plan_of(folder: Path, out: Path, quick: bool = False) -> Plan:
    experiment = load_experiment(folder)
    experiment = experiment.quickened() if quick else experiment
    return make_plan(Order(experiment, folder, out, "pettingllms reproduce"), 1)


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_it_can_be_planned_and_its_arms_roll_out(folder: Path, tmp_path: Path) -> None:
    for arm in plan_of(folder, tmp_path).arms:
        rollout = arm.config.rollout.model_copy(update={"num_tasks": 2})
        config = arm.config.model_copy(update={"rollout": rollout})
        summary = collect(config, tmp_path / arm.folder.name)
        assert summary.num_failed_turns == 0
        assert summary.num_trained_turns > 0


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_quick_says_when_learning_is_broken(folder: Path, tmp_path: Path) -> None:
    arms = plan_of(folder, tmp_path, quick=True).arms
    experiment = load_experiment(folder)
    floors = experiment.quick.floors
    assert floors or experiment.model.name, "only a model that is not tiny learns too slowly"
    for floor in floors:
        (arm,) = (arm for arm in arms if arm.spec.name == floor.arm)
        assert floor.evaluation in [cell.spec.name for cell in arm.evaluations]


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)
def test_quick_has_something_to_draw(folder: Path) -> None:
    quick = load_experiment(folder).quickened()
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


def test_the_experiment_on_the_page_of_results_is_one() -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    experiment = Experiment.model_validate(tomllib.loads(text))
    assert list(experiment.problems()) == []


def test_every_experiment_is_on_the_page_of_results() -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    for folder in EXPERIMENTS:
        assert f"pettingllms reproduce {folder.name}" in page
        assert load_experiment(folder).question in page


SHIPPED = sorted((ROOT / "docs" / "results").glob("*/results.json"))


@pytest.mark.parametrize("numbers", SHIPPED, ids=lambda path: path.parent.name)
def test_tables_that_ship_come_of_the_numbers_beside_them(numbers: Path, tmp_path: Path) -> None:
    """And the numbers of configurations as they are now: else they would be left out."""
    folder = ROOT / "experiments" / numbers.parent.name
    experiment = load_experiment(folder)
    order = Order(experiment, folder, tmp_path, "pettingllms reproduce", joined=[numbers])
    found = gather(order, read_joined(order, pytest.fail), pytest.fail)
    assert make_table(experiment, found.results) == (numbers.parent / "table.md").read_text()


def test_debate_and_one_alone_have_the_same_cost(tmp_path: Path) -> None:
    arms = plan_of(ROOT / "experiments" / "debate", tmp_path).arms
    assert len({arm.config.train.max_tokens for arm in arms}) == 1
    assert {arm.config.env.num_rounds * len(arm.config.roles) for arm in arms} == {6}
    sums = {"solo": 0, "num_rounds": 0, "num_debaters": 0}
    assert len({repr(arm.config.env.model_copy(update=sums)) for arm in arms}) == 1
