"""Runs with many turns: lists read indexes only, in bounded time and memory."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from big_runs import write_big_run

from pettingllms.viewer.endpoints import Endpoints
from pettingllms.viewer.episode_index import open_index
from pettingllms.viewer.query import EpisodeQuery
from pettingllms.viewer.sources import open_run


def bytes_read() -> int:
    """Bytes that this process has read from files so far."""
    line = Path("/proc/self/io").read_text().splitlines()[0]
    return int(line.removeprefix("rchar: "))


def member_bytes(shards: Sequence[Path], prefix: str) -> int:
    """Compressed bytes of some members of shards, with what an archive has per member."""
    found = 0
    for shard in shards:
        with zipfile.ZipFile(shard) as archive:
            members = archive.infolist()
        found += sum(m.compress_size + 200 for m in members if m.filename.startswith(prefix))
        found += 300 + 100 * len(members)  # the directory of the archive
    return found


def test_a_run_of_20000_turns_is_listed_by_its_indexes_and_opened_by_one_frame(
    tmp_path: Path,
) -> None:
    shards = write_big_run(tmp_path / "run", 20, 500, 2, num_words=20)
    size = sum(shard.stat().st_size for shard in shards)
    open_run(tmp_path / "run")  # imports what reading configs needs
    before = bytes_read()
    index = open_index(open_run(tmp_path / "run"))
    index.update()
    page = index.page(EpisodeQuery(outcome="success", sort="reward"))
    of_list = bytes_read() - before
    assert index.num_episodes() == 10_000
    assert 4000 < page["total"] < 6000
    assert of_list < 3 * member_bytes(shards, "index") + 100_000
    assert of_list < size / 5
    (row, *_) = page["rows"]
    full = index.row(row["n"])
    assert full is not None
    before = bytes_read()
    assert index.episode(full).id == row["id"]
    shard = [path for path in shards if f"step-{row['step']:06d}" in path.name]
    frames = {name: member_bytes(shard, name) for name in ("000000", "000001")}
    assert bytes_read() - before < max(frames.values()) + member_bytes(shard, "index")
    assert max(frames.values()) < shard[0].stat().st_size * 0.7, "a step has several frames"


OPEN = """
import json, resource, sys, time
from pathlib import Path
from pettingllms.viewer.endpoints import Endpoints
from pettingllms.viewer.episode_index import open_index
from pettingllms.viewer.query import EpisodeQuery
from pettingllms.viewer.sources import open_run
start, cpu = time.perf_counter(), time.process_time()
index = open_index(open_run(Path(sys.argv[1])))
index.update()
endpoints = Endpoints([index])
endpoints.overview()
first = endpoints.episodes(0, EpisodeQuery())
opened = time.perf_counter() - start
filtered = endpoints.episodes(0, EpisodeQuery(outcome="success", first_step=10, sort="reward"))
curves = endpoints.metrics(0)
found = {
    "first_page": opened, "all": time.perf_counter() - start, "cpu": time.process_time() - cpu,
    "total": first["total"], "filtered": filtered["total"], "steps": curves["num_steps"],
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
}
print(json.dumps(found))
"""
SECONDS, MEGABYTES = 3.0, 600


@pytest.mark.slow
def test_a_run_of_a_million_turns_opens_in_three_seconds(tmp_path: Path) -> None:
    """CPU time of this process is bounded, because other tests may share the machine."""
    shards = write_big_run(tmp_path / "run", 1000, 250, 4)
    assert len(shards) == 1000
    made = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path / "run")],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(made.stdout)
    sys.stdout.write(f"{found}\n")
    assert found["total"] == 250_000
    assert found["steps"] == 1000
    assert 0 < found["filtered"] < 250_000
    assert found["cpu"] < SECONDS
    assert found["megabytes"] < MEGABYTES


def test_the_page_of_a_big_run_is_one_request(tmp_path: Path) -> None:
    write_big_run(tmp_path / "run", 3, 300, 1)
    index = open_index(open_run(tmp_path / "run"))
    index.update()
    page = Endpoints([index]).episodes(0, EpisodeQuery(start=850, count=500))
    assert (page["total"], len(page["rows"])) == (900, 50)
    assert len(json.dumps(page)) < 50_000
