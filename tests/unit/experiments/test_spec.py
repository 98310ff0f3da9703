from pathlib import Path

import pytest
from labs import EXPERIMENT, RUN, Lab, write_experiment

from pettingllms.errors import ConfigError
from pettingllms.experiments.experiment import find_experiment, load_experiment
from pettingllms.experiments.plan import make_plan
from pettingllms.runs.folder import slug

ALONE = RUN[: RUN.index("[policies.policy_b]")]
HUNTER = """
[policies.hunter]
kind = "full"
model = "{model}"
[roles]
a = "policy_a"
b = "policy_a"
[league]
exploiters = ["hunter"]
"""
BY_TURNS = """
[train]
alternate = ["policy_a", "hunter"]
"""
CO_PLAYERS = """
[policies.old]
kind = "frozen"
model = "{model}"
[co_players]
phases = [{members = {policy_b = 1}, until_step = 2}, {members = {old = 1}}]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("question", "questionn", "questionn: unknown key; did you mean 'question'?"),
        ("trained = false", "traind = false", "arms.0.traind: unknown key; did you mean 'trained'"),
        ('measure = "loss"', 'measure = "losses"', "evaluations.1.measure"),
        ('arm = "GRPO"', 'arm = "GPRO"', "quick.floors: unknown name 'GPRO'.*'GRPO'"),
        ("seeds = [7]", 'arms = ["untrained"]', "quick.floors: unknown name 'GRPO'"),
        ('bars = ["aims reached"]', 'bars = ["aims reachd"]', "figure.bars: .*'aims reached'"),
        ('name = "GRPO"', 'name = "Untrained"', "arms: 'untrained' occurs 2 times"),
        ("at_least = 0.5", "", "set at_least or at_most"),
        ("seeds = [1, 2, 3]", "seeds = []", "seeds"),
        ("[figure]", '[model]\nname = "m"\nnum_layers = 2\n[figure]', "remove num_layers"),
        (
            "[figure]",
            '[model]\narchitecture = "qwen2_5_vl"\nhead_dim = 16\n[figure]',
            "does not support head_dim",
        ),
        ("[figure]", "[model]\nnumber_digits = 2\n[figure]", "number_digits needs symbols"),
    ],
)
def test_a_typo_is_refused_with_the_nearest_name(tmp_path, old, new, expected) -> None:
    write_experiment(tmp_path, EXPERIMENT.replace(old, new))
    with pytest.raises(ConfigError, match=expected):
        load_experiment(tmp_path)


@pytest.mark.parametrize(
    ("text", "run", "expected"),
    [
        (EXPERIMENT, RUN.replace("{start}", "{startt}"), "'{startt}'; did you mean 'start'?"),
        (EXPERIMENT.replace("{model}", "{start}"), RUN, "'{start}'; known: model"),
        (EXPERIMENT.replace('role = "a"', 'role = "c"'), RUN, "no role 'c'"),
        (EXPERIMENT, RUN.replace('"full"', '"frozen"'), "no trained policy"),
        (EXPERIMENT.replace('"run.toml"', '"rum.toml"'), RUN, "rum.toml: .*\n.*cannot be read"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path, text, run, expected) -> None:
    lab = Lab(tmp_path, text, run)
    with pytest.raises(ConfigError, match=expected):
        make_plan(lab.request(), 1)


def test_an_evaluation_stands_on_top_of_its_arm(tmp_path: Path) -> None:
    first, second = make_plan(Lab(tmp_path).request(), 5).arms[1].evaluations
    assert (first.config.eval.num_tasks, second.config.eval.num_tasks) == (10, 8)
    assert first.config.train.num_steps == 3
    assert first.config.seed == 5
    assert (first.role, second.role) == ("a", "a")


def test_an_opponent_can_play_a_role_in_an_evaluation(tmp_path: Path) -> None:
    player = 'set = ["policies.b={kind=\\"scripted\\"}", "roles.b=b"]'
    lab = Lab(tmp_path, EXPERIMENT.replace('set = ["eval.num_tasks=8"]', player), ALONE)
    arm = make_plan(lab.request(), 1).arms[1]
    assert dict(arm.config.roles) == {"a": "policy_a", "b": "policy_a"}
    assert dict(arm.evaluations[1].config.roles) == {"a": "policy_a", "b": "b"}


@pytest.mark.parametrize(
    ("run", "met"),
    [
        (ALONE + HUNTER + BY_TURNS, "hunter"),
        (ALONE + "join_step = 3" + HUNTER, "hunter"),
        (RUN + CO_PLAYERS, "old"),
    ],
)
def test_who_was_only_met_in_training_is_no_part_of_an_evaluation(
    tmp_path: Path, run: str, met: str
) -> None:
    player = f'set = ["roles.b={met}"]'
    text = EXPERIMENT.replace('set = ["eval.num_tasks=8"]', player)
    arm = make_plan(Lab(tmp_path, text, run).request(), 1).arms[1]
    plain, against = (set(cell.config.policies) for cell in arm.evaluations)
    assert plain == set(arm.config.roles.values())
    assert against == {"policy_a", met}


def test_experiments_are_found_by_name_or_by_path(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "relays")
    assert find_experiment("relays", tmp_path) == folder
    assert find_experiment(str(folder), Path("elsewhere")) == folder
    with pytest.raises(ConfigError, match="did you mean 'relays'"):
        find_experiment("relay", tmp_path)


def test_names_become_folders() -> None:
    assert slug("two roles, AT-GRPO, one policy") == "two-roles-at-grpo-one-policy"


def test_a_warm_start_that_nothing_begins_with_is_left_out(tmp_path: Path) -> None:
    start = EXPERIMENT[EXPERIMENT.index("[[warm_starts]]") : EXPERIMENT.index("[[arms]]")]
    spare = start.replace("[[warm_starts]]", '[[warm_starts]]\nname = "spare"')
    lab = Lab(tmp_path, EXPERIMENT.replace(start, spare + start))
    assert [planned.spec.name for planned in make_plan(lab.request(), 1).starts] == ["start"]


def test_a_warm_start_that_only_an_evaluation_names_is_made(tmp_path: Path) -> None:
    start = EXPERIMENT[EXPERIMENT.index("[[warm_starts]]") : EXPERIMENT.index("[[arms]]")]
    rival = start.replace("[[warm_starts]]", '[[warm_starts]]\nname = "rival"')
    player = 'set = ["policies.b={kind=\\"frozen\\", model=\\"{rival}\\"}", "roles.b=b"]'
    text = EXPERIMENT.replace(start, rival + start).replace('set = ["eval.num_tasks=8"]', player)
    plan = make_plan(Lab(tmp_path, text, ALONE).request(), 1)
    assert [planned.spec.name for planned in plan.starts] == ["rival", "start"]
