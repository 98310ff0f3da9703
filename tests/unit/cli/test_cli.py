import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pettingllms.cli.main import FIRST_HOUR, app, main
from pettingllms.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"
SELF_PLAY = str(CONFIGS / "tic_tac_toe_self_play.toml")
SOLO = str(CONFIGS / "tic_tac_toe_solo.toml")


def run(*args: str, typed: str | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(args), input=typed)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def fail(monkeypatch, capsys, *args: str) -> str:
    monkeypatch.setattr("sys.argv", ["pettingllms", *args])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_envs_and_algos_are_listed() -> None:
    assert "tic_tac_toe-v1" in run("envs")
    assert "at_grpo" in run("algos")


def test_check_says_who_plays_what(tmp_path: Path) -> None:
    path = tmp_path / "scripted.toml"
    path.write_text(
        '[env]\nid="tic_tac_toe-v1"\n[algo]\ntype="grpo"\n[policies.p]\nkind="scripted"\n'
    )
    text = run("check", str(path))
    assert "can run" in text
    assert "player_o" in text


def test_check_says_what_would_stop_a_sound_configuration() -> None:
    model = "policies.shared.model=nobody/nothing"
    text = " ".join(run("check", SELF_PLAY, model, code=1).split())
    assert "policies.shared.model: model 'nobody/nothing' not found" in text
    assert "pettingllms models get nobody/nothing" in text
    assert "can run" not in text
    found = json.loads(run("check", SELF_PLAY, model, "--json", code=1))
    assert found["num_problems"] >= 1


def test_show_config_prints_toml_that_reads_back(tmp_path: Path) -> None:
    text = run("show-config", SOLO, "seed=5")
    path = tmp_path / "shown.toml"
    path.write_text(text)
    assert run("show-config", str(path)) == text
    assert "seed = 5" in text


def test_an_error_is_a_message_without_a_traceback(monkeypatch, capsys) -> None:
    text = fail(monkeypatch, capsys, "check", SOLO, "rollout.num_sample=3", "seed=x")
    assert "2 problems" in text
    assert "did you mean 'num_samples'?" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["play", "tictactoe-v1"], "did you mean 'tic_tac_toe-v1'?"),
        (["play", "tic_tac_toe-v1", "sollo=true"], "did you mean 'solo'?"),
        (["play", "tic_tac_toe-v1", "--player", "player_y=human"], "did you mean 'player_x'?"),
        (["play", "tic_tac_toe-v1", "--watch", "minmax"], "did you mean 'minimax'?"),
        (["play", "tic_tac_toe-v1", "--task", "99999"], "beyond 1024 tasks"),
        (["score", "nowhere.jsonl"], "no such file"),
        (["rollout", SOLO, "--split", "dev"], "give train or test"),
        (["rollout", SOLO, "--player", "minmax"], "did you mean 'minimax'?"),
        (["rollout", SOLO, "--out", "/dev/null/x"], "Not a directory"),
        (["play", "tic_tac_toe-v1", "id=x"], "id: give the name as ENV"),
    ],
)
def test_wrong_words_are_named(monkeypatch, capsys, args: list[str], expected: str) -> None:
    assert expected in fail(monkeypatch, capsys, *args)


def test_rollouts_are_written_and_scored_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    text = run("rollout", SELF_PLAY, "rollout.num_tasks=2", "--out", str(out))
    assert "No engine is used" in text
    assert "2 episodes" in text
    lines = (out / "episodes.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[0])["turns"][0]["advantage"] is not None
    assert 'type = "tree"' in (out / "config.toml").read_text()
    again = run(
        "score", str(out / "episodes.jsonl"), "--algo", "at_grpo", "--out", str(tmp_path / "again")
    )
    assert "groups with different rewards" in again
    assert (tmp_path / "again").read_text().splitlines() == lines


def test_scoring_with_an_algorithm_that_needs_other_rollouts_says_so(tmp_path: Path) -> None:
    run("rollout", SELF_PLAY, "rollout.num_tasks=1", "--out", str(tmp_path))
    text = run("score", str(tmp_path / "episodes.jsonl"), "--algo", "dr_mas")
    assert "dr_mas on episodes.jsonl" in text
    assert "No turns could be compared" in text


def test_scoring_again_is_what_the_run_did(tmp_path: Path) -> None:
    team = str(CONFIGS / "tic_tac_toe_against_minimax.toml")
    run("rollout", team, "reward.agent=3", "algo.type=dr_mas", "--out", str(tmp_path))
    path = tmp_path / "episodes.jsonl"
    run("score", str(path), "--out", str(tmp_path / "again.jsonl"))
    assert (tmp_path / "again.jsonl").read_text() == path.read_text()


def test_scoring_without_the_runs_configuration_is_refused(monkeypatch, capsys, tmp_path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_text("")
    assert "config.toml" in fail(monkeypatch, capsys, "score", str(path))


def test_words_that_look_like_markup_are_printed_as_they_are(tmp_path: Path) -> None:
    out = tmp_path / "r[x]"
    text = run("rollout", SOLO, "rollout.num_tasks=1", "--out", str(out))
    assert "r[x]" in text.replace("\n", "")


def test_failures_raise_the_alarm(tmp_path: Path) -> None:
    text = run("rollout", SOLO, "rollout.max_steps=1", "--out", str(tmp_path), code=1)
    assert "ALARM" in text
    assert "rollout.max_steps" in text


def test_nothing_to_learn_from_raises_the_alarm(tmp_path: Path) -> None:
    text = run("rollout", SOLO, "algo.type=magrpo", "--out", str(tmp_path), code=1)
    assert "ALARM No turn could be compared" in text


def test_an_earlier_run_is_not_written_over(monkeypatch, capsys, tmp_path: Path) -> None:
    args = ["rollout", SOLO, "rollout.num_tasks=1", "--out", str(tmp_path)]
    run(*args)
    assert "already holds a run" in fail(monkeypatch, capsys, *args)
    run(*args, "--force")


def test_fewer_tasks_than_asked_for_are_mentioned(tmp_path: Path) -> None:
    text = run("rollout", SOLO, "env.num_tasks=2", "rollout.num_tasks=5", "--out", str(tmp_path))
    assert "has 2 train tasks" in text


def test_version() -> None:
    assert run("--version").strip() == "0.1.0"


NIM = """
from dataclasses import dataclass
import pettingllms as pl

@dataclass(frozen=True)
class Heap:
    left: int = 5
    mover: int = 0

class Nim(pl.Environment):
    id = "nim-v1"
    roles = ("first", "second")
    players = {}
    late_rewards = True

    def tasks(self, split): return [pl.Task(split)]
    def reset(self, task, seed): return Heap()
    def acting(self, state): return (self.roles[state.mover],) if state.left > 0 else ()
    def observe(self, state, role): return [pl.user(f"{state.left} left")]
    def success(self, state, role): return role == self.roles[state.mover]
    def step(self, state, replies):
        (reply,) = replies.values()
        assert reply in "12"
        HANG
        left = state.left - int(reply)
        over = pl.Rewards(team=pl.Scored(0.0)) if left <= 0 else pl.Rewards()
        return pl.StepResult(Heap(left, 1 - state.mover), over)
"""


def test_an_environment_of_ones_own_is_played_as_it_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "nim.py"
    path.write_text(NIM.replace("HANG", ""))
    players = ["--player", "first=human", "--player", "second=human"]
    text = run("play", f"{path}:Nim", *players, typed="2\n2\n1\n")
    assert "second (human) succeeded" in text


def test_check_env_names_the_line_that_hangs(monkeypatch, capsys, tmp_path: Path) -> None:
    path = tmp_path / "hanging.py"
    text = NIM.replace("players = {}", 'players = {"random": lambda *_: "1"}')
    path.write_text(text.replace("HANG", "import time; time.sleep(5)"))
    error = fail(monkeypatch, capsys, "check-env", f"{path}:Nim", "--seconds", "1")
    assert "[hangs] not done after 1 s; it is in step, line" in error


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("def success", "def reached"), "cannot be created: TypeError: .* success"),
        (("class Nim(pl.Environment)", "class Nim"), "write class Nim.pettingllms.Environment"),
        (("class Nim", "class Nym"), "has no 'Nim'; did you mean 'Nym'?"),
        (('id = "nim-v1"', ""), "'id'"),
        (("return [pl.Task(split)]", "raise SystemExit"), "raises. .*SystemExit"),
    ],
)
def test_mistakes_of_a_first_environment_are_named(monkeypatch, capsys, tmp_path, change, expected):
    path = tmp_path / f"mistake_{abs(hash(change))}.py"
    path.write_text(NIM.replace("HANG", "").replace(*change))
    assert re.search(expected, fail(monkeypatch, capsys, "check-env", f"{path}:Nim"))


def test_the_traceback_behind_an_error_is_there_when_asked_for(monkeypatch, tmp_path) -> None:
    path = tmp_path / "no_success.py"
    path.write_text(NIM.replace("HANG", "").replace("def success", "def reached"))
    monkeypatch.setenv("PETTINGLLMS_TRACEBACK", "1")
    for args in (["check-env", f"{path}:Nim"], ["check", SOLO, f'env={{id="{path}:Nim"}}']):
        monkeypatch.setattr("sys.argv", ["pettingllms", *args])
        with pytest.raises(ConfigError) as caught:
            main()
        assert isinstance(caught.value.__cause__, TypeError), args


def test_a_person_plays_with_bare_answers() -> None:
    text = run(
        "play",
        "tic_tac_toe-v1",
        "--player",
        "player_x=human",
        "--player",
        "player_o=human",
        typed="1\n4\n2\n5\n?\n3\n",
    )
    assert "you are player_o" in text
    assert "Three in a row wins" in text
    assert "player_x (human) succeeded, return +1.00" in text


def test_a_person_may_leave_and_an_ended_input_is_said() -> None:
    assert "the end" not in run("play", "tic_tac_toe-v1", typed="q\n")
    assert "Input ended" in run("play", "tic_tac_toe-v1", typed="", code=1)


def test_scripted_players_can_be_watched() -> None:
    text = run("play", "tic_tac_toe-v1", "--watch", "minimax", "--delay", "0")
    assert text.count("did not succeed") == 2


def test_bench_prints_json() -> None:
    result = json.loads(run("bench", "rollout", "--episodes", "200", "--repeats", "1", "--json"))
    assert result["at_once"] == 200
    assert result["many_us_per_turn"] > 0


def test_check_env() -> None:
    assert "keeps the environment contract" in run("check-env", "tic_tac_toe-v1", "solo=true")


def test_a_run_that_pauses_itself_has_a_distinct_exit_code(monkeypatch, capsys, tmp_path) -> None:
    pytest.importorskip("ray")
    from pettingllms.errors import PausedError
    from pettingllms.training import train

    def pause(*_: object) -> None:
        raise PausedError("after step 5, a policy has collapsed")

    monkeypatch.setattr(train, "train", pause)
    monkeypatch.setattr("sys.argv", ["pettingllms", "train", SOLO, "--out", str(tmp_path / "r")])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 3
    assert capsys.readouterr().err == "paused after step 5, a policy has collapsed\n"
    assert "has no checkpoint of step 7" in fail(
        monkeypatch, capsys, "resume", str(tmp_path / "r"), "--step", "7"
    )


def test_without_arguments_the_commands_of_the_first_hour_are_shown() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    assert len(FIRST_HOUR) == 5
    for command, what in FIRST_HOUR:
        assert command in result.output
        assert what in result.output
        name = command.split()[1]
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0, name
