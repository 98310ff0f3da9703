"""A full run is compared with the results that ship: inside the tolerance, and outside of it."""

import math
from pathlib import Path

import pytest

from pettingllms.errors import ConfigError
from pettingllms.experiments.experiment import Evaluation, Experiment, Repetition, load_experiment
from pettingllms.experiments.repetition import mismatches, read_results, tolerance
from pettingllms.experiments.results import Evaluated, Result
from pettingllms.experiments.scoring import Measured

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "docs" / "results").glob("*/results.json"))


def measured(value: float, num_tasks: int = 1000) -> Measured:
    return Measured(value, num_tasks, num_tasks, 0, 1.0)


def results_of(**arms: list[float]) -> list[Result]:
    return [
        Result(arm, seed, "", {}, {}, None, {"won": Evaluated("", measured(value), 0.0)})
        for arm, values in arms.items()
        for seed, value in enumerate(values, start=1)
    ]


def experiment(**options: object) -> Experiment:
    arms = [{"name": name, "config": "c"} for name in "ab"]
    evaluations = [{"name": "won", **options}]
    return Experiment.model_validate(
        {"title": "T", "question": "Q?", "arms": arms, "evaluations": evaluations}
    )


def test_tolerance_comes_of_the_scatter_of_all_shipped_seeds() -> None:
    """Variances 0.0004 and 0.0001 with two degrees each: 0.00025; 4 sqrt(0.00025 (1/3 + 1/1))."""
    shipped = [[measured(v) for v in some] for some in ([0.48, 0.5, 0.52], [0.89, 0.9, 0.91])]
    found = tolerance(Repetition(), Evaluation(name="won"), shipped, shipped[0], 1)
    assert found == pytest.approx(4 * math.sqrt(0.00025 * 4 / 3))


def test_tolerance_of_one_shipped_seed_comes_of_its_tasks() -> None:
    one = [measured(0.5, 100)]
    found = tolerance(Repetition(), Evaluation(name="won"), [one], one, 1)
    assert found == pytest.approx(4 * math.sqrt(0.5 * 0.5 / 100 * 2))


def test_tolerance_is_never_below_its_least() -> None:
    alike = [[measured(0.0, 10**6)] * 3, [measured(2.0, 10**6)] * 3]
    assert tolerance(Repetition(), Evaluation(name="won"), alike[:1], alike[0], 3) == 0.03
    points = Evaluation(name="won", measure="reward")
    assert tolerance(Repetition(), points, alike, alike[0], 3) == pytest.approx(0.15 * 2)


@pytest.mark.parametrize(("value", "num_problems"), [(0.94, 0), (0.96, 0), (0.90, 1), (0.24, 1)])
def test_a_cell_inside_the_tolerance_is_reproduced_and_one_outside_is_not(
    value: float, num_problems: int
) -> None:
    shipped = results_of(a=[0.24, 0.25, 0.23], b=[0.95, 0.96, 0.94])
    found = list(mismatches(experiment(), results_of(a=[0.25], b=[value]), shipped))
    assert len(found) == num_problems
    assert all(text.startswith(f"'b', 'won': {value:.3f} differs from the") for text in found)


def test_a_cell_that_is_missing_is_not_reproduced_and_a_new_one_is_passed_over() -> None:
    found = list(mismatches(experiment(), results_of(a=[0.5]), results_of(b=[0.5])))
    assert found == ["'b', 'won': missing, but the shipped results have it"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_shipped_results_reproduce_themselves_and_untrained_ones_do_not(path: Path) -> None:
    """With every trained arm at the numbers of an untrained one, each experiment goes red."""
    spec = load_experiment(ROOT / "experiments" / path.parent.name)
    shipped = read_results(path)
    assert list(mismatches(spec, shipped, shipped)) == []
    untrained = {arm.name for arm in spec.arms if not arm.trained}
    start = {one.seed: one for one in shipped if one.arm in untrained}
    broken = [
        one if one.arm in untrained else Result(one.arm, one.seed, "", {}, {}, None, of.evaluations)
        for one in shipped
        for of in [start[one.seed]]
    ]
    assert list(mismatches(spec, broken, shipped))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(ConfigError, match="not a results.json"):
        read_results(tmp_path / "results.json")
