"""Matches against real servers on loopback: good ones, ones that fail, ones that are slow."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("httpx")

from servers import first_free_cell, serving, slowly

import pettingllms as pl
from pettingllms.cli.main import app, main
from pettingllms.envs import make_env
from pettingllms.evaluation import players as players_module
from pettingllms.evaluation.match.moves import can_show_moves, moves_of

CELL = r"(?m)[XO](?= │| $)"
"""A sign on the drawn board."""
GAME = ("match", "tic_tac_toe-v1")
KEY = "PETTINGLLMS_TEST_KEY"


def run(logs: Path, *args: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*GAME, *args, "--logs", str(logs)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def log(folder: Path, kind: str) -> str:
    (path,) = folder.glob(f"{kind}_*.log")
    assert re.fullmatch(rf"{kind}_\d{{8}}_\d{{6}}\.log", path.name)
    return path.read_text()


def summary(folder: Path, model: str = "tiny_model") -> list[str]:
    return (folder / f"game_summary_{model}.txt").read_text().splitlines()


def counts(line: str) -> list[int]:
    """Win, loss, draw, unfinished, games."""
    return [int(cell) for cell in line.split()[-5:]]


def test_a_match_is_played_in_every_role_and_logged(tmp_path: Path) -> None:
    with serving(first_free_cell) as server:
        said = run(tmp_path, server.url, "--against", "minimax", "--rounds", "6")
    results = log(tmp_path, "game_results")
    games = re.findall(r"round (\d), (test-\d), model is (player_.)", results)
    assert sorted(number for number, *_ in games) == [*"123456"]
    players = {(task, player) for _, task, player in games}
    assert players == {(f"test-{n}", f"player_{s}") for n in range(3) for s in "xo"}
    assert "tic_tac_toe-v1: tiny/model at http://127.0.0.1" in results
    talk = log(tmp_path, "llm_conversation")
    assert talk.count("tiny/model as player_") == len(server.asked)
    assert "  system:\n    You play tic-tac-toe as X." in talk
    assert re.search(r"  reply after \d\.\d\d s:\n    I take it.\n    <answer>1</answer>", talk)
    rows = summary(tmp_path)
    assert rows[0] == "model: tiny/model"
    assert [row.split()[1] for row in rows[3:5]] == ["player_o", "player_x"]
    win, loss, draw, unfinished, games = counts(rows[-1])
    assert (win, unfinished, games) == (0, 0, 6)
    assert loss + draw == 6
    assert "game_summary_tiny_model.txt" in said.replace("\n", "")


def test_every_move_and_the_state_after_it_is_logged(tmp_path: Path) -> None:
    with serving(first_free_cell) as server:
        said = run(tmp_path, server.url, "--against", "minimax", "--rounds", "2")
    games = log(tmp_path, "game_moves").split("--- round ")[1:]
    assert len(games) == 2
    assert "game_moves_" in said.replace("\n", "")
    for game in games:
        start, *moves = re.split(r"  (?:start|move \d+):\n", game)[1:]
        assert not re.search(CELL, start)
        for number, move in enumerate(moves, 1):
            assert re.match(r"    player_[xo]: ", move)
            assert len(re.findall(CELL, move)) == 2 * number, "both roles see one more sign"
        assert len(moves) >= 5


def test_hidden_cards_are_shown_for_each_role(tmp_path: Path) -> None:
    env = make_env("kuhn_poker-v1")
    made = pl.rollout(env="kuhn_poker-v1", model="any", player="nash", out=tmp_path / "run")
    episode = next(iter(made.episodes()))
    titles, texts = zip(*moves_of(env, episode), strict=True)
    assert titles[:2] == ("start", "move 1")
    assert all("player_1 see:" in text and "player_2 see:" in text for text in texts)
    assert can_show_moves(env)
    assert not can_show_moves(make_env("code-v1"))


def test_a_second_match_adds_to_the_summary_and_has_separate_logs(tmp_path: Path) -> None:
    with serving(first_free_cell) as server:
        for _ in range(2):
            run(tmp_path, server.url, "--rounds", "2")
    assert counts(summary(tmp_path)[-1])[-1] == 4
    assert len(list(tmp_path.glob("game_results_*.log"))) == 2


def test_a_server_that_fails_leaves_games_unfinished_and_says_why(tmp_path: Path) -> None:
    def refuse(_: Any) -> tuple[int, object]:
        return 400, {"error": "\x1b[31mthe context is too short"}

    with serving(refuse) as server:
        said = run(tmp_path, server.url, "--rounds", "2", "--role", "x", code=1)
    assert "No game finished" in said
    assert counts(summary(tmp_path)[-1]) == [0, 0, 0, 2, 2]
    assert "HTTP 400" in log(tmp_path, "game_results")
    talk = log(tmp_path, "llm_conversation")
    assert "error after" in talk
    assert "the context is too short" in talk
    assert "\x1b" not in talk


def test_a_server_that_is_busy_once_is_asked_again(tmp_path: Path) -> None:
    busy = [True]

    def answer(body: Any) -> Any:
        return (503, {}) if busy and busy.pop() else first_free_cell(body)

    with serving(answer) as server:
        run(tmp_path, server.url, "--rounds", "1")
    assert counts(summary(tmp_path)[-1])[3] == 0


def test_what_is_no_completion_fails_its_own_game_alone(tmp_path: Path) -> None:
    first = [(200, {"choices": []}), (200, [])]

    def answer(body: Any) -> Any:
        return first.pop() if first else first_free_cell(body)

    with serving(answer) as server:
        run(tmp_path, server.url, "--rounds", "4", "--concurrent", "1")
    assert counts(summary(tmp_path)[-1])[3:] == [2, 4]
    assert "2 errors" in log(tmp_path, "game_results")


def test_a_server_that_is_slow_is_given_up_in_time(tmp_path: Path) -> None:
    with serving(slowly(first_free_cell, 1.5)) as server:
        run(tmp_path, server.url, "--rounds", "2", "--seconds", "0.3", "--role", "x", code=1)
    assert "no reply within 0.3 s" in log(tmp_path, "game_results")
    assert re.search(r"error after \d+\.\d\d s:\n    timed out", log(tmp_path, "llm_conversation"))


def test_replies_that_the_rules_refuse_are_counted_not_hidden(tmp_path: Path) -> None:
    with serving(lambda _: "<answer>1</answer>") as server:
        run(tmp_path, server.url, "--rounds", "1", "--role", "x", "--against", "minimax")
    assert counts(summary(tmp_path)[-1]) == [0, 1, 0, 0, 1]
    assert "1 illegal" in log(tmp_path, "game_results")


def test_two_models_have_a_summary_each(tmp_path: Path) -> None:
    with serving(first_free_cell) as one, serving(first_free_cell, ("other",)) as two:
        run(tmp_path, one.url, "--against", two.url, "--rounds", "4")
    won, lost = (counts(summary(tmp_path, name)[-1]) for name in ("tiny_model", "other"))
    assert won[:3] == [lost[1], lost[0], lost[2]]
    assert won[-1] == lost[-1] == 4


def test_a_key_goes_to_its_own_server_and_into_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "sk-secret")

    replies: list[Any] = ["<answer>1</answer> my key is sk-secret"]

    def echo(_: Any) -> Any:
        return replies.pop() if replies else (401, {"error": "bad key sk-secret"})

    with serving(echo) as one, serving(first_free_cell, ("other",)) as two:
        keys = ("--key", f"{one.url}={KEY}")
        said = run(tmp_path, one.url, "--against", two.url, "--rounds", "2", *keys, code=1)
    assert set(one.auth) == {"Bearer sk-secret"}
    assert set(two.auth) == {None}
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert not any("sk-secret" in text for text in texts)
    assert any("bad key [key]" in text for text in texts)
    assert any("my key is [key]" in text for text in texts)
    assert "sk-secret" not in said


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("minimax",), "'minimax' is not the address of a server"),
        (("http://user:sk-secret@127.0.0.1:1/v1",), "must have no user, password or query"),
        (("http://127.0.0.1:1/v1?api_key=sk-secret",), "must have no user, password or query"),
        (("http://127.0.0.1:1/v1",), "cannot reach"),
        (("http:///v1",), "has no host"),
        (("http://127.0.0.1:1/v1#m", "--against", "human"), "`pettingllms play` is for people"),
        (("http://127.0.0.1:1/v1#m", "--against", "minmax"), "did you mean 'minimax'?"),
        (("http://127.0.0.1:1/v1#m", "--role", "z"), "no role 'z'"),
        (("http://127.0.0.1:1/v1#m", "--key", "NOT_SET_ANYWHERE"), "$NOT_SET_ANYWHERE is not set"),
        (
            ("http://127.0.0.1:1/v1#m", "--against", "http://127.0.0.1:2/v1#n", "--key", "K"),
            "servers are used",
        ),
    ],
)
def test_what_cannot_be_played_is_said_before_a_game(
    args: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(players_module, "MODELS_TIMEOUT", 2.0)
    monkeypatch.setattr("sys.argv", ["pettingllms", *GAME, *args, "--logs", str(tmp_path / "l")])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert expected in said
    assert "sk-secret" not in said
    assert "Traceback" not in said


def test_a_server_with_several_models_asks_for_one(tmp_path: Path, monkeypatch, capsys) -> None:
    with serving(first_free_cell, ("one", "two")) as server:
        monkeypatch.setattr("sys.argv", ["pettingllms", *GAME, server.url])
        with pytest.raises(SystemExit):
            main()
        assert "has 2 models: one, two" in capsys.readouterr().err
        run(tmp_path, f"{server.url}#two", "--rounds", "1")
    assert {body["model"] for body in server.asked} == {"two"}
