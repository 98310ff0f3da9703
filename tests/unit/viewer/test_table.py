"""The table of a run in shards: equal to the index of the same run in JSON lines, and lazy."""

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from plays import LOST, linear, overwrite, rewards, siblings
from viewed import config_of, rolled, write_run, write_shards

from pettingllms.errors import ConfigError, RecordError
from pettingllms.types import Episode, write_episodes
from pettingllms.viewer import search
from pettingllms.viewer import table as module
from pettingllms.viewer.endpoints import Endpoints
from pettingllms.viewer.episode_index import open_index
from pettingllms.viewer.index import Index
from pettingllms.viewer.query import OUTCOMES, SORTS, EpisodeQuery
from pettingllms.viewer.sources import open_run
from pettingllms.viewer.table import Table


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    return rolled(tmp_path_factory.mktemp("rolled"), 30)


def table_of(folder: Path) -> Table:
    table = open_index(open_run(folder))
    assert isinstance(table, Table)
    table.update()
    return table


def ids(table: Table, **query: Any) -> list[str]:
    return [row["id"] for row in table.page(EpisodeQuery(**query))["rows"]]


def shown(page: dict[str, Any]) -> Any:
    """A page without the row numbers, which are arbitrary."""
    rows = [{k: v for k, v in row.items() if k != "n"} for row in page["rows"]]
    return page["total"], json.loads(json.dumps(rows))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, Index]:
    """The same run in three shards per step and in JSON lines."""
    folder = tmp_path_factory.mktemp("both")
    some: list[Episode] = []
    for number in range(14):
        team = [0.0, 1.0, 0.5, 0.25][number % 4]
        one = linear(f"task{number % 5}", number, ("a", rewards(team=team)), ("b", rewards()))
        one.success = [{}, {"a": True}, {"a": False}, {"a": True, "b": False}][number % 4]
        one.turns[0].credit.advantage = None if number % 3 else number / 7
        overwrite(one.turns[1], text=f"say {number} LOUD, then_left")
        some.append(one)
    some += [siblings(f"fork{n}", "a", [n / 2, LOST]) for n in range(6)]
    write_run(folder / "shards", some, 4, num_shards=3)
    write_run(folder / "lines", some, 4, lines=True)
    index = open_index(open_run(folder / "lines"))
    assert isinstance(index, Index)
    index.update()
    return table_of(folder / "shards"), index


FILTERS = [
    *({"outcome": name} for name in OUTCOMES),
    {"kind": "tree"}, {"kind": "linear"}, {"kind": "no such"}, {"first_step": 2},
    {"first_step": 2, "last_step": 3, "outcome": "success"}, {"text": "loud"},
    {"text": "say 1"}, {"text": "then left"}, {"text": "then_le"}, {"text": "lost"},
    {"text": '"SAY" * 1'}, {"text": "ay"}, {"text": "task3/"}, {"start": 5}, {"start": 50},
]  # fmt: skip


@pytest.mark.parametrize("asked", FILTERS, ids=str)
def test_filters_and_pages_are_those_of_the_sql_index(
    both: tuple[Table, Index], asked: dict[str, Any]
) -> None:
    query = EpisodeQuery(**{"count": 7, **asked})
    assert shown(both[0].page(query)) == shown(both[1].page(query))


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", SORTS)
def test_the_order_is_that_of_the_sql_index(
    both: tuple[Table, Index], sort: str, descending: bool
) -> None:
    query = EpisodeQuery(sort=sort, descending=descending, count=100)
    found, expected = (shown(one.page(query)) for one in both)
    assert found == expected
    assert found[0] == 20


def test_unknown_sorts_and_outcomes_are_refused(both: tuple[Table, Index]) -> None:
    for query in (EpisodeQuery(sort="n; DROP"), EpisodeQuery(outcome="won")):
        with pytest.raises(ConfigError):
            both[0].page(query)


def test_an_episode_and_its_step_are_those_of_the_row(both: tuple[Table, Index]) -> None:
    table = both[0]
    for row in table.page(EpisodeQuery(count=100))["rows"]:
        full = table.row(row["n"])
        assert full is not None
        assert table.episode(full).id == row["id"]
        step = table.same_step(full)
        assert row["id"] in [episode.id for episode in step]
        assert len(step) == 5, "those of all shards"
        own = table.same_step(full, row["task"])
        assert {episode.task.id for episode in own} == {row["task"]}
        assert 0 < table.step_size(full) < 20_000
    assert table.row(10**6) is None


def test_neighbors_walk_through_all_episodes(both: tuple[Table, Index]) -> None:
    n: int | None = 1
    seen = []
    while n is not None:
        seen.append(n)
        n = both[0].neighbors(n)["next"]
    assert sorted(both[0].numbers()) == seen == list(range(1, 21))
    assert both[0].neighbors(1)["previous"] is None
    assert both[0].neighbors(2)["previous"] == 1
    assert both[0].progress() == (20, 20)


def test_the_page_groups_the_turns_of_all_shards_of_a_step(
    tmp_path: Path, episodes: list[Episode]
) -> None:
    write_run(tmp_path / "run", episodes[:6], 1, num_shards=3)
    write_run(tmp_path / "old", episodes[:6], 1, lines=True)
    found = []
    for name in ("run", "old"):
        index = open_index(open_run(tmp_path / name))
        index.update()
        (row,) = index.page(EpisodeQuery(text=episodes[4].id))["rows"]
        data = Endpoints([index]).episode(0, row["n"])
        found.append([turn["group"] for turn in data["turns"]])
    assert found[0] == found[1]
    assert any(found[0])


def test_groups_are_those_of_a_step_that_was_sampled_again(
    tmp_path: Path, episodes: list[Episode]
) -> None:
    def groups() -> Any:
        row = table.page(EpisodeQuery(count=1))["rows"][0]
        return [turn["group"] for turn in endpoints.episode(0, row["n"])["turns"]]

    config = write_run(tmp_path / "run", episodes[:6], 1)
    table = table_of(tmp_path / "run")
    endpoints = Endpoints([table])
    before = groups()
    others = copy.deepcopy(episodes[10:16])
    for other, episode in zip(others, episodes[:6], strict=True):
        other.id = episode.id
    write_shards(tmp_path / "run", 1, others, config)
    table.update()
    after = groups()
    endpoints = Endpoints([table])
    assert groups() == after != before


def test_a_run_that_goes_on_is_followed(tmp_path: Path, episodes: list[Episode]) -> None:
    config = write_run(tmp_path / "run", episodes[:10], 2)
    table = table_of(tmp_path / "run")
    assert not table.update(), "nothing is new"
    before = {row["id"]: row["n"] for row in table.page(EpisodeQuery())["rows"]}
    write_shards(tmp_path / "run", 3, episodes[10:14], config, num_shards=2)
    assert table.update()
    rows = table.page(EpisodeQuery(count=100))["rows"]
    assert [row["id"] for row in rows][:4] == [episode.id for episode in episodes[10:14]]
    after = {row["id"]: row["n"] for row in rows}
    assert before.items() <= after.items(), "links to episodes stay valid"


def test_steps_that_were_done_again_replace_what_they_were(
    tmp_path: Path, episodes: list[Episode]
) -> None:
    config = write_run(tmp_path / "run", episodes[:10], 2, num_shards=2)
    table = table_of(tmp_path / "run")
    write_shards(tmp_path / "run", 2, episodes[20:28], config, num_shards=1)
    (tmp_path / "run" / "episodes" / "step-000002-001.zip").unlink()
    table.update()
    assert sorted(ids(table)) == sorted(e.id for e in [*episodes[:5], *episodes[20:28]])
    assert ids(table, text=episodes[5].id) == []


def test_episodes_of_a_replaced_shard_are_not_mixed_with_earlier_numbers(
    tmp_path: Path, episodes: list[Episode]
) -> None:
    config = write_run(tmp_path / "run", episodes[:3], 1)
    table = table_of(tmp_path / "run")
    (row, *_) = table.page(EpisodeQuery(count=1, sort="reward"))["rows"]
    fresh = open_index(open_run(tmp_path / "run"))
    fresh.update()
    write_shards(tmp_path / "run", 1, episodes[10:13], config)
    for ask in (
        lambda: fresh.page(EpisodeQuery()),
        lambda: fresh.page(EpisodeQuery(sort="task")),
        lambda: fresh.page(EpisodeQuery(text="a")),
        lambda: table.episode(table.row(row["n"]) or {}),
    ):
        with pytest.raises(RecordError, match="was replaced, as when a run is resumed"):
            ask()
    for one in (table, fresh):
        one.update()
        assert one.page(EpisodeQuery())["total"] == 3
        assert one.page(EpisodeQuery(text=episodes[11].id))["total"] == 1


def test_old_steps_and_new_ones_are_one_list(tmp_path: Path, episodes: list[Episode]) -> None:
    config = write_run(tmp_path / "run", episodes[:10], 2, lines=True)
    write_shards(tmp_path / "run", 3, episodes[10:14], config)
    table = table_of(tmp_path / "run")
    expected = [*episodes[10:14], *episodes[5:10], *episodes[:5]]
    assert ids(table) == [episode.id for episode in expected]
    for row in table.page(EpisodeQuery())["rows"]:
        assert table.episode(row).id == row["id"]
    assert ids(table, text=episodes[3].id) == [episodes[3].id]


def test_a_shard_without_summaries_is_read_for_them(
    tmp_path: Path, episodes: list[Episode]
) -> None:
    write_run(tmp_path / "run", episodes[:4], 1)
    write_episodes(tmp_path / "e.zip", episodes[:4])
    one, two = table_of(tmp_path / "run"), table_of(tmp_path / "e.zip")
    found = [shown(table.page(EpisodeQuery())) for table in (one, two)]
    for _, rows in found:
        for row in rows:
            del row["step"]
    assert found[0] == found[1]


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path, episodes: list[Episode]) -> None:
    write_run(tmp_path / "run", episodes[:9], 3)
    (tmp_path / "run" / "episodes" / "step-000003-000.zip").write_bytes(b"PK")
    table = open_index(open_run(tmp_path / "run"))
    with pytest.raises(RecordError, match="step-000003"):
        table.update()
    assert table.num_episodes() == 6


@pytest.mark.parametrize("name", ["stamp_of", "read_block"])
def test_a_file_that_is_deleted_meanwhile_does_not_hide_the_others(
    name: str, tmp_path: Path, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is resumed deletes the files of later steps while the viewer reads them."""
    write_run(tmp_path / "run", episodes[:9], 3)
    plain = getattr(module, name)

    def read(path: Path, *others: Any) -> Any:
        if path.name == "step-000001-000.zip":
            path.unlink(missing_ok=True)
        return plain(path, *others)

    monkeypatch.setattr(module, name, read)
    table = table_of(tmp_path / "run")
    table.update()
    assert ids(table) == [episode.id for episode in [*episodes[6:9], *episodes[3:6]]]


def test_a_search_goes_on_where_it_stopped(
    tmp_path: Path, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run", episodes, 6)
    table = table_of(tmp_path / "run")
    monkeypatch.setattr(search, "SECONDS", 0.0)
    monkeypatch.setattr(search.Search.advance, "__defaults__", (0.0,))
    query, shares = EpisodeQuery(text=episodes[2].id), []
    while not shares or shares[-1] < 1:
        page = table.page(query)
        shares.append(page["searched"])
        assert bool(page["rows"]) == (shares[-1] == 1), "it is in the oldest step"
    assert len(shares) == 6
    assert shares == sorted(shares)


def test_lists_read_indexes_and_opening_an_episode_reads_one_frame(
    tmp_path: Path, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run", episodes, 3, num_shards=2)
    read: list[tuple[str, str]] = []
    original = zipfile.ZipFile.read

    def spy(archive: zipfile.ZipFile, name: str) -> bytes:
        read.append((Path(archive.fp.name).name, name))  # type: ignore[union-attr]
        return original(archive, name)

    monkeypatch.setattr(zipfile.ZipFile, "read", spy)
    table = table_of(tmp_path / "run")
    for sort in SORTS:
        table.page(EpisodeQuery(sort=sort, outcome="no_success"))
    assert {member.split(".")[0] for _, member in read} == {"index"}
    (row, *_) = table.page(EpisodeQuery())["rows"]
    read.clear()
    table.episode(row)
    assert {(file, member.split(".")[0]) for file, member in read} == {
        ("step-000003-000.zip", "index"),
        ("step-000003-000.zip", "000000"),
    }
    assert config_of().reward == table.run.reward
