from pathlib import Path

import pytest
from labs import FakeMachine, write_experiment
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.errors import ConfigError


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    write_experiment(tmp_path / "experiments" / "relays")
    monkeypatch.chdir(tmp_path)
    fake = FakeMachine(lambda trained, seed: 6 if trained else 1)
    monkeypatch.setattr("pettingllms.cli.reproduce.ThisMachine", lambda: fake)
    return fake


def run(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["reproduce", *args])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_a_name_is_enough_and_seeds_can_be_chosen(machine: FakeMachine) -> None:
    text = run("relays", "--seed", "1", "--seed", "3")
    assert "60.0%" in text
    assert [call for call in machine.calls if call.startswith("train")] == ["train 1", "train 3"]
    assert (Path("runs/experiments/relays") / "results.json").is_file()


def test_quick_has_a_separate_folder_and_an_exit_code(machine: FakeMachine, monkeypatch) -> None:
    run("relays", "--quick")
    assert (Path("runs/experiments/relays-quick") / "table.md").is_file()
    broken = FakeMachine(lambda trained, seed: 0)
    monkeypatch.setattr("pettingllms.cli.reproduce.ThisMachine", lambda: broken)
    text = run("relays", "--quick", "--out", "broken", code=1)
    assert "0.000 is below the floor of 0.5" in text


def test_table_figure_and_slides_are_copied_for_the_documents(machine: FakeMachine) -> None:
    run(str(Path("experiments/relays").resolve()), "--seed", "1", "--docs")
    names = {path.name for path in Path("docs/results/relays").iterdir()}
    assert names == {"figure.png", "results.json", "slides.pdf", "table.md"}
    assert Path("docs/results/relays/figure.png").read_bytes().startswith(b"\x89PNG")


def test_seeds_that_ship_join_those_that_are_run(machine: FakeMachine) -> None:
    run("relays", "--seed", "1", "--docs", "--out", "there")
    run("relays", "--seed", "2", "--join", "docs/results/relays/results.json", "--out", "here")
    assert "seeds 1, 2" in Path("here/table.md").read_text()


def test_arms_do_not_share_a_gpu(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pettingllms.cli.reproduce.find_gpus", lambda: ["a GPU"])
    run("relays", "--seed", "1", "--jobs", "1")
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES and --seed"):
        run("relays", "--seed", "2", "--jobs", "2")
    assert not Path("runs/experiments/relays/seed-2").exists()


def test_a_folder_without_experiments_is_not_a_wrong_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match="no experiments in experiments; give their folder with --exp"
    ):
        run("plan_path", "--experiments", "experiments")


def test_without_a_name_all_are_said(machine: FakeMachine) -> None:
    with pytest.raises(ConfigError, match="name an experiment: relays"):
        run()


def test_a_full_run_is_compared_with_what_ships(machine: FakeMachine, monkeypatch) -> None:
    assert "no shipped results to compare with" in run("relays", "--seed", "1", "--docs")
    text = run("relays", "--seed", "2", "--out", "again")
    assert "Within tolerance of the shipped results" in text
    broken = FakeMachine(lambda trained, seed: 0)
    monkeypatch.setattr("pettingllms.cli.reproduce.ThisMachine", lambda: broken)
    path = Path("experiments/relays/experiment.toml")
    path.write_text(path.read_text() + "\n[repetition]\nnum_errors = 1  # ten tasks are few\n")
    text = run("relays", "--seed", "2", "--out", "broken", code=1)
    assert "not reproduced" in text
    assert "'GRPO', 'aims reached': 0.000 differs from the shipped 0.600" in text
    assert "not reproduced" not in run("relays", "--quick", code=1), "it has floors instead"
