"""Verifiers before the arms, and policies of one arm that other arms play with."""

from pathlib import Path

import pytest
from labs import EXPERIMENT, RUN, Lab

from pettingllms.errors import ConfigError
from pettingllms.experiments.plan import make_plan


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pettingllms.experiments.figure.draw", lambda picture, path: path.touch())


STAGES = """
[[verifiers]]
name = "checker"
config = "run.toml"
set = ["policies.policy_a.model={start}"]

[[exports]]
name = "partner"
arm = "GRPO"
policy = "policy_a"

[[arms]]
name = "with a partner"
config = "run.toml"
set = ["policies.policy_b={kind=\\"frozen\\", model=\\"{partner}\\"}"]
trained = false
"""
JUDGED = EXPERIMENT.replace(
    'set = ["train.num_steps=3"]', 'set = ["train.num_steps=3", "verifier.model={checker}"]'
).replace("[[evaluations]]", STAGES + "\n[[evaluations]]", 1)


def lab(tmp_path: Path, text: str = JUDGED) -> Lab:
    return Lab(tmp_path, text, RUN)


def test_the_verifier_follows_the_warm_start_and_an_export_its_arm(tmp_path: Path) -> None:
    one = lab(tmp_path)
    one.run(1)
    calls = one.new_calls()
    order = [call.split()[0] for call in calls]
    assert order.index("warm") < order.index("verifier") < order.index("train")
    at = order.index("train")
    assert order[at : at + 2] == ["train", "export"]
    assert order[at + 2 :].count("evaluate") == 4, "of the trained arm, then with a partner"
    assert order.count("verifier") == order.count("export") == 1
    assert one.machine.models[1].endswith("seed-1/models/start"), "the verifier's answers"


def test_nothing_is_repeated_and_a_lost_export_is_written_again(tmp_path: Path) -> None:
    one = lab(tmp_path)
    one.run(1)
    one.new_calls()
    one.run(1)
    assert one.new_calls() == []
    (one.out / "seed-1" / "models" / "partner" / "config.json").unlink()
    (one.out / "seed-1" / "models" / "partner").rmdir()
    one.run(1)
    assert one.new_calls() == ["export policy_a 1"]


def test_the_page_and_the_numbers_have_the_report_of_the_verifier(tmp_path: Path) -> None:
    one = lab(tmp_path)
    one.run(1, 2)
    table = one.table
    assert "## Verifiers" in table
    assert "| checker | 1 | 0.750 | – | 0.700 | 0.200 | 0.050 | 40 |" in table
    assert set(one.results["verifiers"]["checker"]) == {"1", "2"}


def test_an_experiment_without_stages_has_no_such_section_and_the_same_basis(
    tmp_path: Path,
) -> None:
    one = lab(tmp_path, EXPERIMENT)
    one.run(1)
    assert "Verifiers" not in one.table
    request = one.request()
    assert "verifiers" not in make_plan(request, 1).basis(request.experiment.model)


def test_a_verifier_that_no_arm_names_is_not_trained(tmp_path: Path) -> None:
    one = lab(tmp_path, JUDGED.replace(', "verifier.model={checker}"', ""))
    one.run(1)
    assert not any(call.startswith("verifier") for call in one.new_calls())


def test_another_verifier_is_another_basis(tmp_path: Path) -> None:
    one = lab(tmp_path)
    one.run(1)
    path = one.source / "experiment.toml"
    path.write_text(JUDGED.replace('model={start}"]', 'model={start}", "verifier.num_steps=7"]'))
    with pytest.raises(ConfigError, match="made with another experiment"):
        one.run(1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('arm = "GRPO"', 'arm = "nobody"', "exports.arm: unknown name 'nobody'"),
        ('policy = "policy_a"', 'policy = "policy_z"', "'GRPO' trains no policy 'policy_z'"),
        ('arm = "GRPO"', 'arm = "untrained"', "'untrained' trains no policy 'policy_a'"),
        ('name = "partner"', 'name = "start"', "'start' is also the name of another model"),
        ('name = "checker"', 'name = "model"', "'model' is also the name of another model"),
    ],
)
def test_stages_that_cannot_be_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    one = lab(tmp_path, JUDGED.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        one.run(1)
