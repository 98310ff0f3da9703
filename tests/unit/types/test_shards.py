"""Shards: equal when read back, complete or absent, and read in parts."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_strategies import episodes as generated
from episode_strategies import values_of
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import linear, overwrite, rewards
from toys import Relay, roll

from pettingllms.errors import RecordError
from pettingllms.runs.folder import RunFolder
from pettingllms.types import (
    Episode,
    Image,
    Message,
    Shard,
    ShardWriter,
    Table,
    episode_files,
    episode_line,
    read_episodes,
    user,
    write_episodes,
)
from pettingllms.types import shards as module
from pettingllms.types.episode_files import shard_path, step_of
from pettingllms.types.frames import FrameReader, FrameWriter
from pettingllms.types.image_files import no_images


@settings(max_examples=200, deadline=None)
@given(st.lists(generated(), max_size=4), st.integers(1, 3))
def test_any_episodes_come_back_equal_in_every_field(
    some: Sequence[Episode], frame_size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_EPISODES", frame_size)
        path = Path(folder) / "e.zip"
        assert write_episodes(path, some) == len(some)
        assert values_of(list(read_episodes(path))) == values_of(list(some))
        order = list(range(len(some)))[::-1]
        found = Shard(path).select(order)
        assert values_of(found) == values_of([some[at] for at in order])


def with_arrays(number: int, **arrays: Any) -> Episode:
    (turn,) = (episode := linear(f"t{number}", 0, ("a", rewards(team=1.0)))).turns
    for name, value in arrays.items():
        overwrite(turn if hasattr(turn, name) else turn.credit, **{name: value})
    return episode


def test_floats_keep_their_bits_also_where_they_are_not_finite(tmp_path: Path) -> None:
    bits = np.array([0x7FC00001, 0xFF800000, 0x80000000, 0x00000001], np.uint32)
    episode = with_arrays(0, logprobs=np.full(4, -0.5, np.float32))
    episode.turns[0].credit.learner_logprobs = bits.view(np.float32)
    episode.turns[0].credit.returns = bits.view(np.float32)
    write_episodes(tmp_path / "e.zip", [episode])
    ((turn,),) = [one.turns for one in read_episodes(tmp_path / "e.zip")]
    assert turn.credit.learner_logprobs is not None
    assert turn.credit.returns is not None
    assert turn.credit.learner_logprobs.view(np.uint32).tolist() == bits.tolist()
    assert turn.credit.returns.view(np.uint32).tolist() == bits.tolist()


def test_log_probs_of_a_sampler_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    broken = with_arrays(0, logprobs=np.array([np.nan], np.float32))
    with pytest.raises(RecordError, match="non-finite"):
        write_episodes(tmp_path / "e.zip", [broken])
    assert list(tmp_path.iterdir()) == []


def test_arrays_that_are_read_can_be_written_to_and_hold_no_frame(tmp_path: Path) -> None:
    write_episodes(tmp_path / "e.zip", [with_arrays(n) for n in range(3)])
    for episode in read_episodes(tmp_path / "e.zip"):
        (turn,) = episode.turns
        for array in (turn.prompt_ids, turn.response_ids):
            assert array.flags.writeable
            base = array if array.base is None else array.base
            assert base.nbytes == array.nbytes


def test_cells_that_compare_equal_are_told_apart(tmp_path: Path) -> None:
    tables = [Table(("x",), ((cell,),)) for cell in (1, 1.0, True)]
    some = [with_arrays(n, messages=(user("?", table),)) for n, table in enumerate(tables)]
    write_episodes(tmp_path / "e.zip", some)
    found = [e.turns[0].messages[0].parts[0] for e in read_episodes(tmp_path / "e.zip")]
    assert [type(table.rows[0][0]) for table in found] == [int, float, bool]


def test_siblings_share_a_prompt_that_is_stored_once() -> None:
    prompt = np.arange(100_000, dtype=np.int32)
    longer = np.concatenate([prompt, prompt[:7]])
    writer = FrameWriter()
    for number, ids in enumerate((prompt, prompt.copy(), longer, prompt)):
        writer.add(with_arrays(number, prompt_ids=ids, response_ids=prompt[:0]))
    parts = writer.parts()
    assert len(parts["tokens"]) == 4 * (len(prompt) + 7)
    found = [e.turns[0].prompt_ids for e in FrameReader(parts, no_images).episodes()]
    assert [len(ids) for ids in found] == [100_000, 100_000, 100_007, 100_000]
    assert found[2].tolist() == longer.tolist()


def test_equal_episodes_give_equal_files(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_episodes(tmp_path / name, roll(Relay(), num_tasks=3, type="tree"))
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_anyone_can_list_and_unpack_a_shard(tmp_path: Path) -> None:
    write_episodes(tmp_path / "e.zip", some := roll(Relay(), num_tasks=2))
    with zipfile.ZipFile(tmp_path / "e.zip") as archive:
        assert archive.testzip() is None
        lines = [json.loads(line) for line in archive.read("000000.jsonl").splitlines()]
    assert [line["id"] for line in lines] == [episode.id for episode in some]
    assert all(line["format"] == 3 for line in lines)


def test_the_shards_of_several_writers_are_one_sequence(tmp_path: Path) -> None:
    some = [with_arrays(n) for n in range(12)]
    folder = RunFolder(tmp_path)
    writers = [ShardWriter(folder.shard(step, n)) for step in (2, 10) for n in range(3)]
    for number in range(2):  # the writers take turns
        for place, writer in enumerate(writers):
            writer.append(some[2 * place + number])
    for writer in reversed(writers):
        assert writer.close() == 2
    old = tmp_path / "episodes" / "step-000001.jsonl"
    write_episodes(old, [with_arrays(99)])
    assert [step_of(file) for file in episode_files(tmp_path)] == [1, 2, 2, 2, 10, 10, 10]
    assert [e.task.id for e in read_episodes(tmp_path)] == ["t99", *(f"t{n}" for n in range(12))]
    step = tmp_path / "episodes" / "step-000010"
    assert [e.task.id for e in read_episodes(step)] == [f"t{n}" for n in range(6, 12)]
    with pytest.raises(FileNotFoundError, match="no file, step or folder"):
        list(read_episodes(tmp_path / "episodes" / "step-000003"))


def test_more_than_a_thousand_shards_of_a_step_stay_in_order(tmp_path: Path) -> None:
    for number in (1000, 999, 2):
        shard_path(tmp_path, 1, number).touch()
    names = [file.name for file in episode_files(tmp_path)]
    assert names == ["step-000001-002.zip", "step-000001-999.zip", "step-000001-1000.zip"]


def test_a_shard_appears_when_it_is_complete(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    broken = linear("t", 0, ("a", rewards(team=1.0)))
    broken.answers = {"a": object()}  # type: ignore[dict-item]
    with pytest.raises(RecordError, match="plain JSON"):
        write_episodes(folder.shard(1), [with_arrays(0), broken])
    assert list((tmp_path / "episodes").iterdir()) == [], "what failed leaves nothing"
    with ShardWriter(folder.shard(1)) as writer:
        writer.append(with_arrays(0))
        assert episode_files(tmp_path) == []
    assert [file.name for file in episode_files(tmp_path)] == ["step-000001-000.zip"]


KILLED = """
import os, signal, sys
from pathlib import Path
from plays import linear, rewards
from pettingllms.types import ShardWriter, shards
shards.MAX_EPISODES = 2
writer = ShardWriter(Path(sys.argv[1]))
for number in range(9):
    writer.append(linear(f"t{number}", 0, ("a", rewards(team=1.0))))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_nothing_that_readers_see(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write_episodes(folder.shard(1), [with_arrays(0)])
    paths = os.pathsep.join(path for path in sys.path if path)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder.shard(2))],
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "episodes").iterdir())) == 2, "the part is there"
    assert [e.task.id for e in read_episodes(tmp_path)] == ["t0"]
    folder.rewind(1)
    assert [p.name for p in (tmp_path / "episodes").iterdir()] == ["step-000001-000.zip"]


def test_going_back_deletes_the_shards_of_later_steps(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (1, 2, 3):
        for number in (0, 1):
            write_episodes(folder.shard(step, number), [with_arrays(step)])
    folder.rewind(2)
    assert [step_of(file) for file in episode_files(tmp_path)] == [1, 1, 2, 2]


def test_images_are_beside_a_shard_and_stored_once(tmp_path: Path) -> None:
    red = Image(b"red")
    some = [with_arrays(n, messages=(Message("user", "?", (red,)),)) for n in range(3)]
    write_episodes(tmp_path / "e.zip", some)
    assert [path.name for path in (tmp_path / "images").iterdir()] == [f"{red.digest}.png"]
    assert [e.turns[0].messages[0].images for e in read_episodes(tmp_path / "e.zip")] == [
        (red,)
    ] * 3
    (tmp_path / "images" / f"{red.digest}.png").unlink()
    with pytest.raises(RecordError, match="is missing"):
        list(read_episodes(tmp_path / "e.zip"))


def test_summaries_are_read_without_episodes(tmp_path: Path) -> None:
    def summarize(episode: Episode) -> Any:
        return {"score": 1.5 if episode.task.id == "t1" else None}, {"task": episode.task.id}

    write_episodes(tmp_path / "e.zip", [with_arrays(n) for n in range(3)], summarize)
    index = Shard(tmp_path / "e.zip").index()
    assert index.num_episodes == 3
    assert np.isnan(index.numbers["score"]).tolist() == [True, False, True]
    assert index.numbers["score"][1] == 1.5
    texts = Shard(tmp_path / "e.zip").texts()
    assert texts == {"id": ["t0/0", "t1/0", "t2/0"], "task": ["t0", "t1", "t2"]}


def test_reading_takes_one_frame_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EPISODES", 2)
    write_episodes(tmp_path / "e.zip", [with_arrays(n) for n in range(5)])
    read: list[str] = []
    original = zipfile.ZipFile.read
    monkeypatch.setattr(
        zipfile.ZipFile, "read", lambda self, name: read.append(name) or original(self, name)
    )
    found = read_episodes(tmp_path / "e.zip")
    next(found)
    assert {name[:6] for name in read} == {"index.", "000000"}
    read.clear()
    assert [e.task.id for e in found] == ["t1", "t2", "t3", "t4"]
    read.clear()
    Shard(tmp_path / "e.zip").select([4])
    assert {name[:6] for name in read} == {"index.", "000002"}


def test_a_frame_is_bounded_by_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    big = np.arange(20_000, dtype=np.int32)
    write_episodes(tmp_path / "e.zip", [with_arrays(n, response_ids=big) for n in range(4)])
    assert Shard(tmp_path / "e.zip").index().frames == [2, 2]


DAMAGED = {
    "empty": lambda whole: b"",
    "half": lambda whole: whole[: len(whole) // 2],
    "without an end": lambda whole: whole[:-30],
    "something else": lambda whole: b"not a zip file at all\n" * 20,
    "flipped": lambda whole: whole[:60] + bytes([whole[60] ^ 255]) + whole[61:],
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_shard_is_named(tmp_path: Path, how: str) -> None:
    path = tmp_path / "e.zip"
    write_episodes(path, roll(Relay(), num_tasks=3))
    path.write_bytes(DAMAGED[how](path.read_bytes()))
    with pytest.raises(RecordError, match=r"e\.zip: "):
        list(read_episodes(path))


def edited(path: Path, member: str, change: Any) -> None:
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    found[member] = change(found[member])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in found.items():
            archive.writestr(name, data)


def line_with(**changes: Any) -> Any:
    def change(lines: bytes) -> bytes:
        data = json.loads(lines.splitlines()[0])
        data["turns"][0] |= changes
        return json.dumps(data).encode() + b"\n"

    return change


HOSTILE = {
    "a count below zero": ("000000.jsonl", line_with(response_ids=-1), "count"),
    "a count that is no number": ("000000.jsonl", line_with(response_ids="9"), "count"),
    "more ids than there are": ("000000.jsonl", line_with(response_ids=10**12), "fewer tokens"),
    "fewer ids than there are": ("000000.jsonl", line_with(response_ids=0), "more tokens"),
    "a prompt that is unknown": ("000000.jsonl", line_with(prompt_ids=7), "not a shard"),
    "a prompt with a wrong base": ("000000.jsonl", line_with(prompt_ids=[3, 1, 1]), "not a shard"),
    "a message that is unknown": ("000000.jsonl", line_with(messages=[-1]), "count"),
    "another format": ("000000.jsonl", lambda lines: lines.replace(b":3,", b":9,", 1), "format 9"),
    "an index of another format": ("index.json", lambda data: data.replace(b"3", b"4", 1), "at 4"),
    "an index with a wrong count": ("index.json", lambda data: data.replace(b"[1]", b"[2]"), ""),
    "texts that do not fit": ("index.texts.json", lambda _: b'{"id": []}', ""),
    "no JSON": ("index.json", lambda _: b"[" * 100_000, ""),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_shard_that_lies_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "e.zip"
    write_episodes(path, [with_arrays(0)])
    member, change, reason = HOSTILE[how]
    edited(path, member, change)
    with pytest.raises(RecordError, match=rf"e\.zip: .*{reason}"):
        (list(read_episodes(path)), Shard(path).index(), Shard(path).texts())


def test_a_member_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.zip"
    write_episodes(path, [with_arrays(0, text="x" * 50_000)])
    monkeypatch.setattr(module, "MAX_PART", 10_000)
    with pytest.raises(RecordError, match=r"claims 5\d,"):
        list(read_episodes(path))


def test_parts_that_unpack_to_too_much_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.zip"
    zeros = np.zeros(2000, np.float32)
    write_episodes(path, [with_arrays(0, advantages=zeros, returns=zeros, values=zeros)])
    monkeypatch.setattr(module, "MAX_PART", 10_000)
    with pytest.raises(RecordError, match=r"frame 0 claims 2\d,"):
        list(read_episodes(path))


def test_prompts_that_unfold_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = FrameWriter()
    ids = np.arange(1000, dtype=np.int32)
    for number in range(20):
        writer.add(with_arrays(number, prompt_ids=np.append(ids, np.int32(number))))
    monkeypatch.setattr("pettingllms.types.frames.MAX_IDS", 10_000)
    with pytest.raises(RecordError, match="more than 10,000 ids"):
        list(FrameReader(writer.parts(), no_images).episodes())


def test_lines_written_before_stay_readable(tmp_path: Path) -> None:
    run = Path(__file__).parents[3] / "examples" / "a_run"
    some = list(read_episodes(run))
    assert len(some) == 9
    write_episodes(tmp_path / "e.zip", some)
    assert [*map(episode_line, read_episodes(tmp_path / "e.zip"))] == [*map(episode_line, some)]
