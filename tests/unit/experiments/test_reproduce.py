import json
from pathlib import Path

import pytest
from labs import EXPERIMENT, RUN, FakeMachine, Lab

from pettingllms.errors import ConfigError, ExperimentError
from pettingllms.experiments.plan import make_plan
from pettingllms.runs.folder import RunFolder

ONE_SEED = [
    "model 1, 1 environments",
    "warm start 1 by random",
    "evaluate 1 untrained",
    "evaluate 1 untrained",
    "train 1",
    "evaluate 1 trained",
    "evaluate 1 trained",
]

ONLY_EVALUATED = EXPERIMENT.replace('name = "GRPO"', 'name = "GRPO"\ntrained = false')


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take most of the time here; those of the command line are drawn."""
    monkeypatch.setattr("pettingllms.experiments.figure.draw", lambda picture, path: path.touch())


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_everything_is_made_in_order(lab: Lab) -> None:
    lab.run(1)
    assert lab.new_calls() == ONE_SEED
    assert {path.name for path in lab.out.iterdir()} == {
        "figure.png",
        "results.json",
        "seed-1",
        "slides.pdf",
        "table.md",
    }


def test_slides_are_a_page_for_each_thing_to_say_and_the_same_each_time(lab: Lab) -> None:
    lab.run(1)
    first = (lab.out / "slides.pdf").read_bytes()
    # The title, the curves, the two evaluations side by side, and what it took.
    assert first.count(b"/Type /Page /") == 4
    lab.run(1)
    assert (lab.out / "slides.pdf").read_bytes() == first


def test_words_stand_for_the_models_that_were_made(lab: Lab) -> None:
    lab.run(2)
    top = lab.out.resolve() / "seed-2"
    assert lab.machine.models[0] == str(top / "model")
    assert set(lab.machine.models[1:]) == {str(top / "models" / "start")}


def test_a_warm_start_is_no_run_to_resume(lab: Lab) -> None:
    lab.run(1)
    assert RunFolder(lab.out / "seed-1" / "warm-start").is_supervised
    assert not RunFolder(lab.out / "seed-1" / "grpo").is_supervised


def test_a_warm_start_without_that_mark_is_gone_on_with(lab: Lab) -> None:
    folder = RunFolder(lab.out / "seed-1" / "warm-start")
    folder.create(make_plan(lab.request(), 1).starts[0].config)
    lab.run(1)
    assert lab.new_calls() == ONE_SEED


def test_nothing_is_done_twice(lab: Lab) -> None:
    lab.run(1)
    before = lab.results
    lab.new_calls()
    lab.run(1)
    assert lab.new_calls() == []
    assert lab.results == before


def test_a_seed_that_is_asked_for_twice_is_run_once(lab: Lab) -> None:
    lab.run(1, 1)
    assert lab.new_calls() == ONE_SEED


def test_a_seed_adds_to_the_table_of_those_that_are_there(lab: Lab) -> None:
    lab.run(1)
    (lab.out / "seed-1-old").mkdir()
    assert "40.0% [16.8, 68.7] W" in lab.table
    lab.run(2)
    lab.run(3)
    assert "60.0% [10.3, 100.0]" in lab.table
    assert {(r["arm"], r["seed"]) for r in lab.results["results"]} == {
        (arm, seed) for arm in ("untrained", "GRPO") for seed in (1, 2, 3)
    }


def test_every_number_has_what_it_took(lab: Lab) -> None:
    lab.run(1)
    (result,) = (r for r in lab.results["results"] if r["arm"] == "GRPO")
    assert result["training"] == {"num_steps": 3, "num_tokens": 300, "seconds": 6.0}
    measured = result["evaluations"]["aims reached"]["measured"]
    assert len(measured.pop("tasks")) == 16
    assert sorted(measured.pop("values")) == [0.0] * 6 + [1.0] * 4
    assert measured == {
        "value": 0.4, "num_tasks": 10, "num_episodes": 10, "num_failed": 0, "tokens": 2.0,
    }  # fmt: skip
    assert result["command"] == "pettingllms reproduce relays --seed 1"
    assert result["machine"]["cores"] >= 1
    assert result["machine"]["cpu"]
    assert result["versions"]["pettingllms"]
    assert lab.results["curves"]["GRPO"]["1"] == {"x": [0, 100, 200], "y": [0.1, 0.2, 0.3]}
    untrained = next(r for r in lab.results["results"] if r["arm"] == "untrained")
    assert untrained["training"] is None


def test_progress_names_seed_arm_step_tokens_and_reward(lab: Lab) -> None:
    lab.run(1)
    assert "seed 1, GRPO: step 2 of 3, 200 tokens, a reward +0.200" in lab.said
    assert "seed 1, GRPO: 'aims reached' 0.400" in lab.said


def test_what_was_stopped_goes_on(lab: Lab) -> None:
    lab.machine.stop_after = 2
    with pytest.raises(ExperimentError, match="stopped after step 2"):
        lab.run(1)
    assert lab.new_calls() == ONE_SEED[:5]
    lab.machine.stop_after = None
    lab.run(1)
    assert lab.new_calls() == ONE_SEED[4:]


def test_a_training_that_used_its_tokens_is_not_taken_for_stopped(tmp_path: Path) -> None:
    lab = Lab(tmp_path, run=RUN + "[train]\nmax_tokens = 200\n")
    lab.machine.stop_after = 1
    with pytest.raises(ExperimentError):
        lab.run(1)
    lab.machine.stop_after = 2
    lab.run(1)
    assert lab.results["results"][1]["training"]["num_tokens"] == 200


def test_a_new_column_is_evaluated_without_training_again(lab: Lab, tmp_path: Path) -> None:
    lab.run(1)
    lab.new_calls()
    column = '[[evaluations]]\nname = "paid"\nmeasure = "reward"\nset = ["eval.num_tasks=7"]\n'
    again = Lab(tmp_path, EXPERIMENT.replace("[figure]", column + "[figure]"))
    again.run(1)
    assert again.new_calls() == ["evaluate 1 untrained", "evaluate 1 trained"]
    assert "| 1.000 |" in again.table


def test_two_columns_of_the_same_plays_are_played_once(lab: Lab, tmp_path: Path) -> None:
    lab.run(1)
    lab.new_calls()
    column = '[[evaluations]]\nname = "paid"\nmeasure = "reward"\n'
    again = Lab(tmp_path, EXPERIMENT.replace("[figure]", column + "[figure]"))
    again.run(1)
    assert again.new_calls() == []
    assert "| 1.000 |" in again.table


def test_a_column_that_changed_is_evaluated_again(lab: Lab, tmp_path: Path) -> None:
    lab.run(1)
    again = Lab(tmp_path, EXPERIMENT.replace("num_tasks=8", "num_tasks=9"))
    again.run(1)
    assert again.new_calls() == ["evaluate 1 untrained", "evaluate 1 trained"]


def test_numbers_from_before_an_arm_was_trained_are_not_its_numbers(tmp_path: Path) -> None:
    before = Lab(tmp_path, ONLY_EVALUATED)
    before.run(1, 2)
    lab = Lab(tmp_path)
    lab.run(2)
    assert lab.new_calls() == ["train 2", "evaluate 2 trained", "evaluate 2 trained"]
    numbers = {r["seed"]: r["evaluations"] for r in lab.results["results"] if r["arm"] == "GRPO"}
    assert list(numbers) == [2]
    assert numbers[2]["aims reached"]["measured"]["value"] == 0.6
    assert f"skipped: {lab.out.resolve()}/seed-1/grpo was made with trained = false" in lab.said


def test_a_trained_arm_is_not_evaluated_as_an_untrained_one(tmp_path: Path) -> None:
    Lab(tmp_path).run(1)
    again = Lab(tmp_path, ONLY_EVALUATED)
    with pytest.raises(ConfigError, match="'GRPO' after training, .* set trained = true"):
        again.run(1)
    again.run(2)
    arms = [(r["arm"], r["seed"]) for r in again.results["results"]]
    assert arms == [("untrained", 1), ("untrained", 2), ("GRPO", 2)]
    assert any("seed-1/grpo was made with trained = true" in line for line in again.said)


@pytest.mark.parametrize(
    ("there", "here", "trained"),
    [(EXPERIMENT, ONLY_EVALUATED, "true"), (ONLY_EVALUATED, EXPERIMENT, "false")],
)
def test_trained_numbers_and_untrained_ones_do_not_join(
    tmp_path: Path, there: str, here: str, trained: str
) -> None:
    other, lab = Lab(tmp_path / "there", there), Lab(tmp_path / "here", here)
    other.run(1)
    lab.run(2, join=[other.out / "results.json"])
    arms = [(r["arm"], r["seed"]) for r in lab.results["results"]]
    assert arms == [("untrained", 1), ("untrained", 2), ("GRPO", 2)]
    assert any(f"'GRPO' was made with trained = {trained}" in line for line in lab.said)


@pytest.mark.parametrize("option", ["decay_entropy = true\\n", ',\n  "number_digits": 1'])
def test_models_outlive_an_option_that_came_later(tmp_path: Path, option: str) -> None:
    Lab(tmp_path).run(1)
    (path,) = tmp_path.rglob("basis.json")
    older = path.read_text().replace(option, "")
    assert older != path.read_text()
    path.write_text(older)
    Lab(tmp_path).run(1)


def test_numbers_from_another_machine_join_the_table(tmp_path: Path) -> None:
    there, here = Lab(tmp_path / "there"), Lab(tmp_path / "here")
    there.run(1, 3)
    here.run(2, join=[there.out / "results.json"])
    assert here.new_calls() == [call.replace("1", "2", 1) for call in ONE_SEED]
    both = Lab(tmp_path / "both")
    both.run(1, 2, 3)
    assert here.table == both.table
    assert here.results["curves"] == both.results["curves"]
    assert {r["seed"] for r in here.results["results"]} == {1, 2, 3}
    assert str(tmp_path) not in (there.out / "results.json").read_text()


def test_what_was_run_elsewhere_is_not_run_again(tmp_path: Path) -> None:
    there, here = Lab(tmp_path / "there"), Lab(tmp_path / "here")
    there.run(1)
    data = json.loads((there.out / "results.json").read_text())
    here.run(1, join=[there.out / "results.json"])
    assert here.new_calls() == []
    assert here.table == there.table
    data["results"] = [one for one in data["results"] if one["arm"] != "GRPO"]
    (tmp_path / "less.json").write_text(json.dumps(data))
    less = Lab(tmp_path / "less")
    less.run(1, join=[tmp_path / "less.json"])
    assert less.new_calls() == [*ONE_SEED[:2], *ONE_SEED[4:]]
    assert less.table == there.table


def test_what_was_run_here_is_not_taken_from_elsewhere(tmp_path: Path) -> None:
    there, here = Lab(tmp_path / "there"), Lab(tmp_path / "here")
    there.machine = FakeMachine(lambda trained, seed: 10)
    there.run(1)
    here.run(1)
    alone = here.table
    here.run(1, join=[there.out / "results.json"])
    assert here.table == alone


@pytest.mark.parametrize(
    ("old", "new"),
    [("sft.player=random", "sft.player=other"), ("train.num_steps=3", "train.num_steps=4")],
)
def test_numbers_of_another_configuration_do_not_join(tmp_path: Path, old, new) -> None:
    there = Lab(tmp_path / "there", EXPERIMENT.replace(old, new))
    there.run(1)
    here = Lab(tmp_path / "here")
    here.run(2, join=[there.out / "results.json"])
    assert any("skipped" in text and "another configuration" in text for text in here.said)
    assert ("GRPO", 1) not in {(r["arm"], r["seed"]) for r in here.results["results"]}


@pytest.mark.parametrize("change", ['x = "step"', "smooth = 2", 'role = "b"', 'y = "eval_reward"'])
def test_curves_of_another_figure_do_not_join(tmp_path: Path, change: str) -> None:
    there = Lab(tmp_path / "there")
    there.run(1)
    here = Lab(tmp_path / "here", EXPERIMENT.replace("[figure]", f"[figure]\n{change}"))
    path = there.out / "results.json"
    here.run(2, join=[path])
    assert {r["seed"] for r in here.results["results"]} == {1, 2}
    assert list(here.results["curves"]["GRPO"]) == ["2"]
    assert any(f"skipped: curves in {path}" in line for line in here.said)


def test_the_figure_says_how_many_seeds_its_lines_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(
        "pettingllms.experiments.figure.draw", lambda picture, path: notes.append(picture.note)
    )
    there = Lab(tmp_path / "there", EXPERIMENT.replace("[figure]", "[figure]\nsmooth = 2"))
    here = Lab(tmp_path / "here")
    there.run(1)
    here.run(2, join=[there.out / "results.json"])
    here.run(3, join=[there.out / "results.json"])
    assert [note.partition(".")[0] for note in notes] == [
        "One seed",
        "Lines: one seed",
        "Lines: mean over 2 seeds; bands: minimum to maximum",
    ]


def test_curves_that_do_not_say_of_which_figure_they_are_do_not_join(tmp_path: Path) -> None:
    """Older ones have their points at the ends of steps."""
    there, here = Lab(tmp_path / "there"), Lab(tmp_path / "here")
    there.run(1)
    older = {key: value for key, value in there.results.items() if key != "figure"}
    (there.out / "results.json").write_text(json.dumps(older))
    here.run(2, join=[there.out / "results.json"])
    assert list(here.results["curves"]["GRPO"]) == ["2"]


@pytest.mark.parametrize("lost", ["results", "basis", "configs", "curves", ""])
def test_a_file_that_holds_no_numbers_is_refused_before_anything_is_run(
    tmp_path: Path, lost: str
) -> None:
    there, here = Lab(tmp_path / "there"), Lab(tmp_path / "here")
    there.run(1)
    path = there.out / "results.json"
    kept = {key: value for key, value in there.results.items() if key != lost}
    path.write_text(json.dumps(kept) if lost else "{")
    with pytest.raises(ConfigError, match="not a results.json of `reproduce`"):
        here.run(2, join=[path])
    assert here.new_calls() == []
    assert not here.out.exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[figure]", "[model]\nnum_layers = 3\n[figure]"),
        ("sft.player=random", "sft.player=other"),
        ("policy_a.model={model}", 'policy_a.model={model}", "policies.policy_a.lr=1e-2'),
    ],
)
def test_models_that_were_made_otherwise_are_not_taken(tmp_path: Path, old, new) -> None:
    """Their folders have the same names, so the configurations of the arms do not tell."""
    Lab(tmp_path).run(1)
    again = Lab(tmp_path, EXPERIMENT.replace(old, new))
    with pytest.raises(ConfigError, match="made with another experiment.toml"):
        again.run(1)
    assert again.new_calls() == []
    again.run(2)
    assert {r["seed"] for r in again.results["results"]} == {2}


def test_a_run_of_another_configuration_is_not_gone_on_with(lab: Lab, tmp_path: Path) -> None:
    lab.run(1)
    again = Lab(tmp_path, EXPERIMENT.replace("num_steps=3", "num_steps=4"))
    with pytest.raises(ConfigError, match="'GRPO' with another configuration"):
        again.run(1)
    again.run(2)
    assert any("skipped" in line and "seed-1" in line for line in again.said)
    arms = [(r["arm"], r["seed"]) for r in again.results["results"]]
    assert arms == [("untrained", 1), ("untrained", 2), ("GRPO", 2)]


@pytest.mark.parametrize(("num_won", "short"), [(6, 0), (5, 0), (4, 1)])
def test_quick_goes_red_below_the_floor(lab: Lab, num_won: int, short: int) -> None:
    lab.machine = FakeMachine(lambda trained, seed: num_won if trained else 0)
    problems = lab.run(quick=True)
    assert len(problems) == short
    assert lab.new_calls() == [
        "model 7, 1 environments",
        "warm start 7 by random",
        "evaluate 7 untrained",
        "train 7",
        "evaluate 7 trained",
    ]
    assert lab.results["results"][1]["training"]["num_steps"] == 2
    if short:
        assert problems == ["'GRPO', 'aims reached': 0.400 is below the floor of 0.5"]


def test_a_bound_from_above_goes_red_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, EXPERIMENT.replace("at_least = 0.5", "at_most = 0.3"))
    lab.machine = FakeMachine(lambda trained, seed: 4)
    assert lab.run(quick=True) == ["'GRPO', 'aims reached': 0.400 is above the bound of 0.3"]


def test_other_seeds_do_not_lift_one_to_its_floor(tmp_path: Path) -> None:
    good, broken = Lab(tmp_path / "good"), Lab(tmp_path / "broken")
    good.machine = FakeMachine(lambda trained, seed: 9)
    good.run(8, 9, quick=True)
    broken.machine = good.machine = FakeMachine(lambda trained, seed: 0)
    short = ["'GRPO', 'aims reached': 0.000 is below the floor of 0.5"]
    assert broken.run(7, quick=True, join=[good.out / "results.json"]) == short
    assert good.run(7, quick=True) == short


def test_a_missing_number_is_red(lab: Lab) -> None:
    """A floor that nothing is measured against would be green for ever."""
    from pettingllms.experiments.report import Collected, shortfalls

    assert shortfalls(lab.request(quick=True), Collected(), [7]) == [
        "'GRPO', 'aims reached': no result, but a floor is set"
    ]


def test_a_metric_that_no_run_has_is_named_with_the_nearest(tmp_path: Path) -> None:
    lab = Lab(tmp_path, EXPERIMENT.replace("[figure]", '[figure]\ny = "rewards"'))
    lab.run(1)
    assert any("'roles/a/rewards'; did you mean 'roles/a/reward'?" in line for line in lab.said)


def test_all_problems_show_before_anything_is_run(tmp_path: Path) -> None:
    lab = Lab(tmp_path, EXPERIMENT.replace("eval.num_tasks=8", "eval.num_task=8"))
    with pytest.raises(ConfigError, match="did you mean 'num_tasks'"):
        lab.run(1)
    assert lab.new_calls() == []
    assert not lab.out.exists()
