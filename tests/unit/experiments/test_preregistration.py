"""Preregistered plans: what they must agree with, and how reports tell planned results."""

from dataclasses import replace
from pathlib import Path

import pytest
from labs import EXPERIMENT, RUN, Lab

from pettingllms.errors import ConfigError
from pettingllms.experiments.contrasts import effects
from pettingllms.experiments.plan import make_plan
from pettingllms.experiments.preregistration import load_preregistration

PLAN = """
date = 2026-11-19
primary = "aims reached"
seeds = [1, 2, 3]
max_tokens = 300
settings = "Those of the tests."

[[contrasts]]
claim = "Training helps."
arm = "GRPO"
minus = "untrained"

[[pilots]]
seeds = [101]
first_task = 5000
num_tasks = 10
tried = "Two budgets."
found = "Both learn."
"""
BUDGET = 'set = ["train.num_steps=3", "train.max_tokens=300"]'
TEXT = EXPERIMENT.replace('set = ["train.num_steps=3"]', BUDGET)


class PlannedLab(Lab):
    """An experiment with a plan.toml."""

    def __init__(self, folder: Path, plan: str = PLAN, text: str = TEXT, run: str = RUN) -> None:
        super().__init__(folder, text, run)
        self.plan = self.source / "plan.toml"
        self.plan.write_text(plan)

    def request(self, quick: bool = False):
        request = super().request(quick)
        plan = load_preregistration(self.source, request.experiment)
        return replace(request, preregistration=plan)


def test_results_of_a_plan_are_reported_as_planned(tmp_path: Path) -> None:
    lab = PlannedLab(tmp_path)
    lab.run()
    assert lab.results["plan"]["changed_seeds"] == []
    assert {one["plan"] for one in lab.results["results"]} == {lab.results["plan"]["digest"]}
    assert "Fixed on 2026-11-19 in `plan.toml`, before the runs" in lab.table
    assert "Partial" not in lab.table
    assert "| Training helps. | GRPO − untrained | 3 | +40.0 |" in lab.table
    assert "Two budgets. Both learn." in lab.table


def test_a_plan_that_changed_after_a_run_is_reported(tmp_path: Path) -> None:
    lab = PlannedLab(tmp_path)
    lab.run(1)
    lab.plan.write_text(PLAN.replace("Those of the tests.", "Others."))
    lab.run(2)
    assert lab.results["plan"]["changed_seeds"] == [1]
    assert "**The plan changed after the runs** of seeds 1:" in lab.table
    assert "before the runs" not in lab.table


def test_a_seed_keeps_the_plan_of_its_first_run_even_before_it_has_results(tmp_path: Path) -> None:
    lab = PlannedLab(tmp_path)
    lab.machine.stop_after = 1
    with pytest.raises(Exception, match="stopped after step 1"):
        lab.run(1)
    lab.machine.stop_after = None
    lab.plan.write_text(PLAN.replace("Those of the tests.", "Others."))
    lab.run(1)
    assert lab.results["plan"]["changed_seeds"] == [1]


def test_comments_do_not_change_a_plan(tmp_path: Path) -> None:
    lab = PlannedLab(tmp_path)
    lab.run(1)
    lab.plan.write_text(f"# A comment.\n{PLAN}")
    lab.run(1)
    assert lab.results["plan"]["changed_seeds"] == []


def test_results_without_a_plan_are_not_planned(tmp_path: Path) -> None:
    lab = PlannedLab(tmp_path)
    lab.plan.unlink()
    lab.run(1)
    assert "plan" not in lab.results
    lab.plan.write_text(PLAN)
    lab.run(1)
    assert lab.results["plan"]["changed_seeds"] == [1]


def test_missing_seeds_and_arms_are_reported_as_partial(tmp_path: Path) -> None:
    lab = PlannedLab(tmp_path)
    lab.run(1)
    assert "**Partial: 1 of 3 planned seeds have every arm.**" in lab.table
    lab.run(2, arms=["untrained"])
    assert "**Partial: 1 of 3 planned seeds have every arm.**" in lab.table


def test_only_the_named_arms_run(tmp_path: Path) -> None:
    lab = PlannedLab(tmp_path)
    lab.run(1, arms=["untrained"])
    assert "train 1" not in lab.machine.calls
    with pytest.raises(ConfigError, match="no arm 'PPO'"):
        lab.run(1, arms=["PPO"])


def test_an_effect_has_an_interval_over_seeds_and_one_over_tasks(tmp_path: Path) -> None:
    """Gaps by seed are 3, 4 and 5 of 10; by task they are the mean over seeds."""
    lab = PlannedLab(tmp_path)
    lab.run()
    request = lab.request()
    from pettingllms.experiments.report import collect
    from pettingllms.experiments.report import read_joined as joined

    found = collect(request, joined(request, lab.said.append), lab.said.append)
    (effect,) = effects(request.preregistration, found.results)
    assert effect.value == pytest.approx(0.4)
    assert effect.num_seeds == 3
    assert effect.over_seeds == pytest.approx(
        (0.4 - 4.302653 * 0.1 / 3**0.5, 0.4 + 0.248417), abs=1e-5
    )
    # Tasks won by the trained arm only: task-1 with seed 1, tasks 2 and 3 with two seeds, ...
    gaps = [0, 1 / 3, 2 / 3, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3, 0, 0]
    mean = sum(gaps) / 10
    error = (sum((gap - mean) ** 2 for gap in gaps) / 9 / 10) ** 0.5
    assert effect.over_tasks == pytest.approx((mean - 2.262157 * error, mean + 2.262157 * error))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [1, 2, 3]\nmax", "seeds = [1, 2]\nmax", r"are \[1, 2\], but experiment.toml has"),
        ('arm = "GRPO"', 'arm = "GRPOO"', "unknown name 'GRPOO'"),
        ('primary = "aims reached"', 'primary = "aims"', "unknown name 'aims'"),
        ("seeds = [101]", "seeds = [3]", r"pilots: used seeds \[3\] of the table"),
    ],
)
def test_a_plan_of_something_else_is_rejected(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in PLAN
    lab = PlannedLab(tmp_path, PLAN.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        lab.request()


@pytest.mark.parametrize(
    ("plan", "text", "message"),
    [
        (PLAN.replace("max_tokens = 300", "max_tokens = 400"), TEXT, "max_tokens = 300, but the"),
        (PLAN.replace("first_task = 5000", "first_task = 9"), TEXT, "a pilot used test tasks"),
        (PLAN, TEXT.replace('=300"]', '=300", "policies.policy_a.model=x"]'), "different models"),
    ],
)
def test_runs_that_do_not_follow_the_plan_are_rejected(
    tmp_path: Path, plan: str, text: str, message: str
) -> None:
    lab = PlannedLab(tmp_path, plan, text)
    with pytest.raises(ConfigError, match=message):
        make_plan(lab.request(), 1)


def test_contrasts_with_another_schedule_are_rejected(tmp_path: Path) -> None:
    other = '\n[[arms]]\nname = "B"\nconfig = "run.toml"\n' + BUDGET.replace(
        '"]', '", "learner.decay_tokens=300"]'
    )
    text = TEXT.replace("\n[[evaluations]]", f"{other}\n\n[[evaluations]]", 1)
    lab = PlannedLab(tmp_path, PLAN.replace('minus = "untrained"', 'minus = "B"'), text)
    with pytest.raises(ConfigError, match="set the same learner.decay_tokens in both"):
        make_plan(lab.request(), 1)


def test_a_forest_plot_has_a_row_per_contrast(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from pettingllms.experiments.contrasts import Effect
    from pettingllms.experiments.forest_figure import Row, draw_forest

    effect = Effect("C.", "A", "B", "x", "y", 0.1, (0.05, 0.15), (0.08, 0.12), 3, (4.0, 16.0))
    single = replace(effect, over_seeds=None, num_seeds=1, value=-0.1)
    heights = []
    for rows in ([effect], [effect, single]):
        draw_forest("Contrasts", [Row("ledgers", one) for one in rows], tmp_path / "f.png")
        heights.append(int.from_bytes((tmp_path / "f.png").read_bytes()[20:24]))
    assert heights[1] > heights[0]
    assert Row("ledgers", single).name == "ledgers: A − B (y), n = 1"
