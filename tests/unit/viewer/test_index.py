"""The episode index: complete, in sync with the files, and paged."""

import json
from pathlib import Path

import pytest
from plays import LOST, linear, overwrite, rewards, siblings
from viewed import rolled, write_run

from pettingllms.errors import RecordError
from pettingllms.types import Episode, write_episodes
from pettingllms.viewer.index import FILE, Index
from pettingllms.viewer.query import EpisodeQuery, query_page
from pettingllms.viewer.sources import open_run


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    return rolled(tmp_path_factory.mktemp("rolled"), 30)


def index_of(folder: Path) -> Index:
    index = Index(open_run(folder))
    index.update()
    return index


def ids(index: Index, **query: object) -> list[str]:
    return [row["id"] for row in query_page(index, EpisodeQuery(**query))["rows"]]


def test_every_episode_is_found_once_newest_first(tmp_path: Path, episodes: list[Episode]) -> None:
    write_run(tmp_path / "run", episodes, 6, lines=True)
    index = index_of(tmp_path / "run")
    found = query_page(index, EpisodeQuery(count=100))
    assert found["total"] == len(episodes)
    assert sorted(row["id"] for row in found["rows"]) == sorted(e.id for e in episodes)
    assert [row["step"] for row in found["rows"]] == sorted(
        (s for s in range(1, 7) for _ in range(5)), reverse=True
    )
    pages = [ids(index, start=start, count=7) for start in range(0, 30, 7)]
    assert [one for page in pages for one in page] == [row["id"] for row in found["rows"]]


def test_a_row_says_what_its_episode_holds(tmp_path: Path, episodes: list[Episode]) -> None:
    write_run(tmp_path / "run", episodes, 2, lines=True)
    index = index_of(tmp_path / "run")
    by_id = {episode.id: episode for episode in episodes}
    for row in query_page(index, EpisodeQuery())["rows"]:
        episode = by_id[row["id"]]
        assert row["outcomes"] == episode.success
        assert row["replies"] == len(episode.turns)
        assert row["tokens"] == episode.num_tokens + sum(episode.dropped_tokens.values())
        assert row["steps"] == len(episode.main_branch())
        assert row["kind"] == "tree"
        full = index.row(row["n"])
        assert full is not None
        assert index.episode(full).id == row["id"]


def test_filters_and_search_give_those_and_no_others(tmp_path: Path) -> None:
    won, lost = (linear(f"task{n}", 0, ("a", rewards(team=n))) for n in (1.0, 0.0))
    won.success, lost.success = {"a": True, "b": True}, {"a": False, "b": False}
    split = siblings("fork", "a", [1.0, LOST])
    split.success = {"a": True, "b": False}
    overwrite(won.turns[0], text="go UP, then left")
    overwrite(lost.turns[0], text='say "OR" * (up')
    write_episodes(tmp_path / "e.jsonl", [won, lost, split])
    index = index_of(tmp_path / "e.jsonl")
    assert ids(index, outcome="success") == ["task1.0/0"]
    assert ids(index, outcome="no_success") == ["task0.0/0"]
    assert ids(index, outcome="partial") == ids(index, outcome="failed") == ids(index, kind="tree")
    assert ids(index, text="then LEFT") == ["task1.0/0"]
    assert ids(index, text="lef") == ["task1.0/0"], "the last word may be a prefix"
    assert ids(index, text='"OR" * (up') == ["task0.0/0"], "nothing in it is an operator"
    assert ids(index, text="lost") == ["fork/0"], "reasons of failures are searched"
    assert ids(index, sort="reward", descending=False)[0] == "task0.0/0"
    assert ids(index, first_step=1) == []


def test_a_run_that_goes_on_is_followed(tmp_path: Path, episodes: list[Episode]) -> None:
    write_run(tmp_path / "run", episodes[:10], 2, lines=True)
    index = index_of(tmp_path / "run")
    assert not index.update(), "nothing is new"
    path = tmp_path / "run" / "episodes" / "step-000003.jsonl"
    write_episodes(path, episodes[10:14])
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert index.update()
    assert index.num_episodes() == 13, "the line that is being written waits"
    path.write_bytes(whole)
    index.update()
    assert index.num_episodes() == 14


def test_steps_that_were_done_again_replace_what_they_were(
    tmp_path: Path, episodes: list[Episode]
) -> None:
    write_run(tmp_path / "run", episodes[:10], 2, lines=True)
    index = index_of(tmp_path / "run")
    again = tmp_path / "run" / "episodes" / "step-000002.jsonl"
    write_episodes(again, episodes[20:28])
    index.update()
    assert sorted(ids(index)) == sorted(e.id for e in [*episodes[:5], *episodes[20:28]])
    again.unlink()
    index.update()
    assert sorted(ids(index)) == sorted(e.id for e in episodes[:5])
    assert ids(index, text=episodes[20].id) == [], "words of what is gone find nothing"


def test_the_index_is_kept_and_taken_up_again(tmp_path: Path, episodes: list[Episode]) -> None:
    write_run(tmp_path / "run", episodes, 3, lines=True)
    index_of(tmp_path / "run")
    assert (tmp_path / "run" / FILE).is_file()
    (tmp_path / "run").rename(tmp_path / "moved")
    again = Index(open_run(tmp_path / "moved"))
    assert again.num_episodes() == len(episodes)
    assert not again.update(), "also where the run has another place"
    row = again.row(1)
    assert row is not None
    assert again.episode(row).id == row["id"]


def test_a_file_that_holds_no_episodes_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({"format": 1}) + "\n")
    with pytest.raises(RecordError, match=r"x.jsonl, byte 0: not an episode"):
        index_of(tmp_path / "x.jsonl")


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path, episodes: list[Episode]) -> None:
    write_run(tmp_path / "run", episodes[:9], 3, lines=True)
    (tmp_path / "run" / "episodes" / "step-000003.jsonl").write_text("{}\n")
    index = Index(open_run(tmp_path / "run"))
    with pytest.raises(RecordError, match="step-000003"):
        index.update()
    assert index.num_episodes() == 6


@pytest.mark.parametrize("what", ["no table", "head", "middle", "half"])
def test_a_damaged_index_is_made_anew(what: str, tmp_path: Path, episodes: list[Episode]) -> None:
    write_run(tmp_path / "run", episodes, 6, lines=True)
    index_of(tmp_path / "run")
    path = tmp_path / "run" / FILE
    whole = path.read_bytes()
    damaged = {
        "no table": b"no table at all\n" * 500,
        "head": b"\xff" * 4096 + whole[4096:],
        "middle": whole[:4096] + b"\xff" * (len(whole) - 4096),
        "half": whole[: len(whole) // 2],
    }
    path.write_bytes(damaged[what])
    index = index_of(tmp_path / "run")
    assert query_page(index, EpisodeQuery())["total"] == len(episodes)
    assert query_page(index_of(tmp_path / "run"), EpisodeQuery())["total"] == len(episodes)


def test_an_index_that_is_damaged_while_it_is_looked_at_is_made_anew(
    tmp_path: Path, episodes: list[Episode]
) -> None:
    write_run(tmp_path / "run", episodes, 6, lines=True)
    index = index_of(tmp_path / "run")
    (tmp_path / "run" / FILE).write_bytes(b"no table at all\n" * 500)
    with pytest.raises(RecordError, match="delete it"):
        index.num_episodes()
    index.update()
    assert index.num_episodes() == len(episodes)


@pytest.mark.parametrize(
    "change", [{"id": "\ud800"}, {"task": []}, {"success": [1]}, {"num_extra_tokens": 10**30}]
)
def test_an_episode_that_the_table_cannot_hold_is_named(
    tmp_path: Path, episodes: list[Episode], change: dict[str, object]
) -> None:
    write_run(tmp_path / "run", episodes[:1], 1, lines=True)
    path = tmp_path / "run" / "episodes" / "step-000001.jsonl"
    data = json.loads(path.read_text()) | change
    data["steps"][0]["turns"] = []
    path.write_text(json.dumps(data) + "\n")
    with pytest.raises(RecordError, match="byte 0: not an episode"):
        index_of(tmp_path / "run")
