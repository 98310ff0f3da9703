import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from plays import LOST, linear, rewards

from pettingllms.errors import RecordError
from pettingllms.evaluation.match.tally import (
    HEAD,
    OUTCOMES,
    Row,
    add_to_summary,
    outcome_of,
    read_summary,
    summary_path,
)
from pettingllms.types import Episode

ROW = Row("tic_tac_toe-v1", "player_x", "minimax")


def ended(agent: bool, **success: bool) -> Episode:
    given = rewards(agent={"a": 0.0, "b": 0.0}) if agent else rewards(team=0.0)
    episode = linear("t", 0, ("a", given))
    episode.success = success
    return episode


def test_an_outcome_is_that_of_the_models_role() -> None:
    assert outcome_of(ended(True, a=True, b=False), "a") == "win"
    assert outcome_of(ended(True, a=True, b=False), "b") == "loss"
    assert outcome_of(ended(True, a=False, b=False), "a") == "draw"
    assert outcome_of(ended(False, a=False, b=False), "a") == "loss", "a team that failed"
    failed = linear("t", 0, ("a", rewards()), failure=LOST)
    assert outcome_of(failed, "a") == "unfinished"
    assert outcome_of(ended(True), "a") == "unfinished"


def test_calls_add_up(tmp_path: Path) -> None:
    path = summary_path(tmp_path, "org/model 7b")
    assert path.name == "game_summary_org_model_7b.txt"
    add_to_summary(path, "org/model 7b", [(ROW, "win"), (ROW, "draw")])
    other = Row("hanabi-v1", "player_1", "a  name\nwith breaks")
    total = add_to_summary(path, "org/model 7b", [(ROW, "win"), (other, "unfinished")])
    assert dict(total) == {"win": 2, "draw": 1, "unfinished": 1}
    found = read_summary(path, "org/model 7b")
    assert found[ROW] == {"win": 2, "loss": 0, "draw": 1, "unfinished": 0}
    assert found[Row("hanabi-v1", "player_1", "a name with breaks")]["unfinished"] == 1
    lines = path.read_text().splitlines()
    assert lines[0] == "model: org/model 7b"
    assert lines[2].split() == ["game", "role", "against", *OUTCOMES, "games"]
    assert lines[-1].split() == ["all", "2", "0", "1", "1", "4"]


def test_matches_that_end_at_the_same_time_lose_no_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_slowly(path: Path, model: str) -> Any:
        found = read_summary(path, model)
        time.sleep(0.02)
        return found

    monkeypatch.setattr("pettingllms.evaluation.match.tally.read_summary", read_slowly)
    path = summary_path(tmp_path, "m")
    with ThreadPoolExecutor(4) as pool:
        ended = [pool.submit(add_to_summary, path, "m", [(ROW, "win")]) for _ in range(8)]
    assert sorted(one.result()["win"] for one in ended) == list(range(1, 9))
    assert read_summary(path, "m")[ROW]["win"] == 8


def test_a_summary_of_nothing_reads_back(tmp_path: Path) -> None:
    path = summary_path(tmp_path, "m")
    add_to_summary(path, "m", [])
    assert read_summary(path, "m") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "notes of mine\n",
        "model: other\n\ngame\n",
        "model: m\n\ngame  player\n",
        f"model: m\n\n{'  '.join(HEAD)}\na  b  c  1  2  x  3  6\n",
    ],
)
def test_what_is_no_summary_of_this_model_is_not_written_over(tmp_path: Path, text: str) -> None:
    path = summary_path(tmp_path, "m")
    path.write_text(text)
    with pytest.raises(RecordError):
        add_to_summary(path, "m", [(ROW, "win")])
    assert path.read_text() == text


def test_a_models_name_is_no_path(tmp_path: Path) -> None:
    assert summary_path(tmp_path, "../../etc/x").parent == tmp_path
