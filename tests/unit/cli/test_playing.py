"""Games at the terminal, typed through stdin: people, scripts, servers and runs at one table."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from servers import first_free_cell, serving, slowly
from typer.testing import CliRunner

from pettingllms.cli.main import app

X_AND_O = ("play", "tic_tac_toe-v1")


def run(*args: str, typed: str | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(args), input=typed)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_a_person_plays_a_script_to_the_end() -> None:
    players = ("--player", "player_x=human", "--player", "player_o=minimax")
    text = run(*X_AND_O, *players, typed="5\n1\n2\n3\n4\n6\n7\n8\n9\n")
    assert "you are player_x" in text
    assert "a free cell: 1, 2, 3, 4, 5, 6, 7, 8, 9" in text
    assert "player_o (minimax): " in text, "in an open game its move is said"
    assert "the end" in text


def test_wrong_input_is_explained_and_asked_again() -> None:
    players = ("--player", "x=human", "--player", "o=human")
    text = run(*X_AND_O, *players, typed="1\n1\n\nten\n4\n2\n5\n3\n")
    assert "Not possible: cell 1 is taken by X. Try again." in text
    assert "Not possible: 'ten' is not a cell from 1 to 9" in text
    assert "player_x (human) succeeded, return +1.00" in text


@pytest.mark.parametrize(
    ("env", "typed", "expected"),
    [
        ("hanabi-v1", "dance\n", "does not start with play, discard or hint"),
        ("hanabi-v1", "discard 1\n", "information tokens are there already"),
        ("plan_path-v1", "RX\n", "'X' is not a move"),
        ("sudoku-v1", "1\n", "1 digits, but the grid has 16 cells"),
    ],
)
def test_every_game_explains_what_it_refuses(env: str, typed: str, expected: str) -> None:
    assert expected in run("play", env, typed=typed, code=1)


def test_a_game_that_does_not_explain_is_tried_first(tmp_path: Path) -> None:
    text = CHOOSY.replace("RAISES", "pass")
    (tmp_path / "choosy.py").write_text(text)
    said = run("play", f"{tmp_path / 'choosy.py'}:Choosy", typed="no\nyes\n")
    assert "Not possible: this reply is illegal" in said
    assert "succeeded" in said


def test_a_game_that_breaks_on_a_word_does_not_break_the_program(tmp_path: Path) -> None:
    (tmp_path / "breaking.py").write_text(CHOOSY.replace("RAISES", "assert reply == 'yes'"))
    said = run("play", f"{tmp_path / 'breaking.py'}:Choosy", typed="no\nyes\n")
    assert "Not possible: refusal raised AssertionError" in said
    assert "succeeded" in said


CHOOSY = """
import pettingllms as pl

class Choosy(pl.Environment):
    id = "choosy-v1"
    roles = ("one",)
    players = {"random": lambda *_: "yes"}

    def tasks(self, split): return [pl.Task(split)]
    def reset(self, task, seed): return False
    def acting(self, state): return () if state else ("one",)
    def observe(self, state, role): return [pl.user("Say yes.")]
    def success(self, state, role): return True
    def step(self, state, replies):
        reply = replies["one"]
        RAISES
        paid = pl.Rewards(team=pl.Scored(0.0))
        return pl.StepResult(True, paid, {"illegal": float(reply != "yes")})
"""


def program(*args: str, **options: Any) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, "-m", "pettingllms", *args], **{**pipes, **options})


def test_bytes_that_are_no_text_are_wrong_input_and_no_traceback() -> None:
    process = program(*X_AND_O, env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"})
    said, _ = process.communicate(b"\xff\xfe\n\x1b[A\n[/bold]\nq\n", timeout=60)
    assert process.returncode == 0
    assert said.count(b"Not possible") == 3
    assert b"Traceback" not in said


def test_ctrl_c_ends_a_game_politely() -> None:
    process = program(*X_AND_O, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    seen = b""
    while b"player_x> " not in seen:
        seen += process.stdout.read1()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)  # its input is still open: `communicate` would end that at once
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert b"You left the game." in said
    assert b"Traceback" not in said
    assert b"Aborted" not in said


def test_a_server_plays_a_role() -> None:
    pytest.importorskip("httpx")
    with serving(first_free_cell) as server:
        text = run(
            *X_AND_O, "--player", "x=human", "--player", f"o={server.url}", typed="9\n5\n1\n7\nq\n"
        )
        watched = run(*X_AND_O, "--watch", server.url, "--delay", "0")
    assert "player_o (tiny/model): I take it. 1" in text
    assert server.asked[0]["messages"][0]["content"].startswith("You play tic-tac-toe as O")
    assert "player_x (tiny/model) succeeded" in watched


def test_a_scripted_player_with_a_noise_level_plays_a_role() -> None:
    watched = run(*X_AND_O, "--watch", "minimax~0.3", "--delay", "0")
    assert "player_x (minimax~0.3)" in watched


def test_a_server_is_sent_the_images_of_its_role() -> None:
    pytest.importorskip("httpx")
    pytest.importorskip("PIL")
    with serving(lambda _: "nothing") as server:
        player = ("--player", f"looker={server.url}", "--player", "mover=random", "--delay", "0")
        run("play", "visual_relay-v1", *player)
    *_, last = server.asked[0]["messages"]
    urls = [part["image_url"]["url"] for part in last["content"] if part["type"] == "image_url"]
    assert urls
    assert all(url.startswith("data:image/png;base64,") for url in urls)


def test_a_server_that_fails_or_is_slow_ends_the_game_with_a_message(monkeypatch, capsys) -> None:
    pytest.importorskip("httpx")
    from pettingllms.cli.main import main

    for answer, seconds, expected in (
        (lambda _: (400, {"error": "too long"}), "60", "did not answer: HTTP 400"),
        (slowly(first_free_cell, 1.5), "0.2", "no reply within 0.2 s"),
    ):
        with serving(answer) as server:
            players = ["--player", f"x={server.url}", "--seconds", seconds]
            monkeypatch.setattr("sys.argv", ["pettingllms", *X_AND_O, *players])
            with pytest.raises(SystemExit) as caught:
                main()
        assert caught.value.code == 2
        assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("player", "expected"),
    [
        ("x=", "write ROLE=human, ROLE=PLAYER, ROLE=RUN or ROLE=URL"),
        ("z=human", "no role 'z'"),
        ("x=minmax", "a run folder or http://HOST:PORT/v1; did you mean 'minimax'?"),
        ("x=minimax~7", "write a number from 0 to 1 after ~"),
        ("x=/nowhere", "'/nowhere' is not a player, a run folder or http://HOST"),
        ("x=http://a:b@h/v1", "must have no user, password or query"),
    ],
)
def test_wrong_players_are_named(player: str, expected: str, monkeypatch, capsys) -> None:
    from pettingllms.cli.main import main

    monkeypatch.setattr("sys.argv", ["pettingllms", *X_AND_O, "--player", player])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert expected in " ".join(capsys.readouterr().err.split())


def test_a_run_plays_a_role_with_its_saved_weights(tmp_path: Path) -> None:
    for package in ("ray", "torch", "transformers"):
        pytest.importorskip(package)
    from fakes import FakeRun, Watched, faked, legal_cell, train_with_fakes

    from pettingllms.config import parse_config

    config = {
        "env": {"id": "tic_tac_toe-v1", "terse": True},
        "algo": {"type": "grpo"},
        "policies": {"p": {"kind": "lora", "model": "m"}},
        "train": {"num_steps": 2},
    }
    train_with_fakes(parse_config(config), tmp_path / "run", legal_cell)
    heard = []

    def answer(request: Any, number: int, weights: int) -> str:
        heard.append((request.policy, request.role, weights))
        return legal_cell(request, number, weights)

    run_of = FakeRun(Watched())
    with faked(run_of, answer), pytest.MonkeyPatch.context() as patch:
        patch.setattr("pettingllms.cluster.inference_team.ray_running", lambda _: nullcontext())
        players = ("--player", "x=human", "--player", f"o={tmp_path / 'run'}")
        text = run(*X_AND_O, "terse=true", *players, typed="1\n2\n3\n4\n5\n6\n7\n8\n9\n" * 3)
        other = run(*X_AND_O, *players, typed="q\n")
        with pytest.raises(Exception, match="trained on 'tic_tac_toe-v1', but .* 'hanabi-v1'"):
            run("play", "hanabi-v1", "--player", f"player_2={tmp_path / 'run'}", typed="q\n")
    assert "the end" in text
    assert set(heard) == {("p", "player_o", 2)}
    assert "was trained with terse=True, not False" in " ".join(other.split())
