"""Ranks that do not reach the run folder write and read checkpoints through a file server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
torch = pytest.importorskip("torch")

from ray.exceptions import RayActorError

from pettingllms.cluster import checkpoint_files, failures
from pettingllms.cluster.checkpoint_files import (
    FileServer,
    RayFolder,
    RaySource,
    folder_of,
    reached,
    through,
)
from pettingllms.cluster.engine_files import engine_files
from pettingllms.cluster.learners import Learners
from pettingllms.cluster.watchdog import Watchdog
from pettingllms.errors import CheckpointError, ClusterError, LearnerLostError
from pettingllms.learners.rank import Rank
from pettingllms.learners.shard_writer import LocalFolder, ShardWriter, Written
from pettingllms.learners.weights import tensors_in, to_bytes
from pettingllms.policies.files import MODEL_FILE, OPTIMIZER_FILE, read_content
from pettingllms.policies.tensor_shards import MAX_BYTES, Shards, make_header

TENSORS = {"w": torch.arange(12.0).view(3, 4), "step": torch.tensor(2)}


class Method:
    """A method of an actor that is called right away; sizes of what it got and gave are noted."""

    def __init__(self, method: Any, sizes: list[int]) -> None:
        self._method, self._sizes = method, sizes

    def remote(self, *args: Any) -> Any:
        found = self._method(*args)
        self._sizes += [len(one) for one in (*args, found) if isinstance(one, np.ndarray)]
        return found


class Server:
    """A file server in this process."""

    def __init__(self) -> None:
        self._server = FileServer()
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self._server, name), self.sizes)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(checkpoint_files.ray, "get", lambda value: value)
    return Server()


def saved(folder: Any) -> Written:
    writer = ShardWriter(torch.device("cpu"))
    writer.start("p", folder, {MODEL_FILE: TENSORS}, {"c.json": b"{}"}, False)
    found = writer.poll("p")
    assert found is not None
    return found


def test_what_is_written_through_a_server_is_what_is_written_here(
    tmp_path: Path, server: Server
) -> None:
    (tmp_path / "far").mkdir()
    assert saved(RayFolder(server, tmp_path / "far")) == saved(LocalFolder(tmp_path))
    for name in (MODEL_FILE, "c.json"):
        assert (tmp_path / "far" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_blocks_are_bounded_both_ways(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pettingllms.learners.shard_writer.MAX_BYTES", 8)
    monkeypatch.setattr(checkpoint_files, "MAX_BYTES", 5)
    saved(RayFolder(server, tmp_path))
    written = list(server.sizes)
    assert sorted(written)[-2] == 8, "all but the header"
    server.sizes.clear()
    out = torch.zeros(3, 4)
    tensors_in(RaySource(server, tmp_path / MODEL_FILE))["w"].fill(out)
    assert torch.equal(out, TENSORS["w"])
    assert max(server.sizes) == 5
    assert MAX_BYTES <= 64 * 2**20


def test_a_full_disk_of_the_drivers_machine_is_named(tmp_path: Path, server: Server) -> None:
    (tmp_path / MODEL_FILE).symlink_to("/dev/full")
    problem = saved(RayFolder(server, tmp_path)).problem
    assert problem.startswith(f"cannot write {tmp_path / MODEL_FILE}: No space left on device")
    gone = saved(RayFolder(server, tmp_path / "gone")).problem
    assert gone.startswith(f"cannot write {tmp_path / 'gone' / 'c.json'}: No such file")


def test_parts_are_read_through_a_server(tmp_path: Path, server: Server) -> None:
    (tmp_path / MODEL_FILE).write_bytes(to_bytes(TENSORS))
    files = {MODEL_FILE: Shards((tmp_path / MODEL_FILE,)), "c.json": b"{}"}
    given = through(server, files)
    assert given["c.json"] == b"{}"
    assert read_content(given[MODEL_FILE]) == to_bytes(TENSORS)
    assert server.sizes
    assert folder_of(files) == tmp_path
    assert folder_of({"c.json": b"{}"}) is None


class Actor:
    """A rank that reaches folders or not, and notes what it was asked."""

    def __init__(self, reaches: bool = True, written: tuple[Written | None, ...] = ()) -> None:
        self.reaches, self.written, self.calls = reaches, list(written), []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        return type("Remote", (), {"remote": getattr(self, f"_{name}")})

    async def _sees(self, token: Path) -> bool:
        return self.reaches and Rank.sees(self, token)  # type: ignore[arg-type]

    async def _save(self, *args: Any) -> None:
        self.calls.append(args)

    async def _saved(self, _: str) -> Written | None:
        return self.written.pop(0) if len(self.written) > 1 else self.written[0]

    async def _call(self, *args: Any) -> None:
        self.calls.append(args)


def learners_of(*actors: Actor) -> Learners:
    made = Learners.__new__(Learners)
    made.actors, made._spec, made._server, made._one_machine = list(actors), None, None, False
    made._watchdog = Watchdog(["p"])
    return made


def test_ranks_that_do_not_reach_a_folder_are_found_and_served(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = Actor(), Actor(reaches=False)
    assert asyncio.run(reached([near, far], tmp_path, Watchdog([]))) == [True, False]
    assert list(tmp_path.iterdir()) == []
    assert asyncio.run(reached([near], tmp_path / "not_there", Watchdog([]))) == [False]
    monkeypatch.setattr("pettingllms.cluster.learners.start_server", lambda: server)
    made = learners_of(near, far)
    asyncio.run(made.save("p", tmp_path, True))
    assert near.calls == [("p", LocalFolder(tmp_path), True)]
    assert far.calls == [("p", RayFolder(server, tmp_path), True)]
    (tmp_path / "f").write_bytes(b"w")
    asyncio.run(made.load("p", {"f": tmp_path / "f"}))
    assert near.calls[-1] == ("load", "p", {"f": tmp_path / "f"})
    assert far.calls[-1] == ("load", "p", {"f": RaySource(server, tmp_path / "f")})
    asyncio.run(made.load("p", {"f": b"w"}))
    assert far.calls[-1] == ("load", "p", {"f": b"w"})


def test_a_rank_that_may_not_enter_a_folder_does_not_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's home on its node, or a stale mount of a network disk."""

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    token = tmp_path / "token"
    token.write_text("token")
    assert Rank.sees(Actor(), token)  # type: ignore[arg-type]
    monkeypatch.setattr(Path, "stat", denied)
    monkeypatch.setattr(Path, "open", denied)
    assert not Rank.sees(Actor(), token)  # type: ignore[arg-type]


def test_a_save_is_over_once_all_ranks_are_and_names_the_rank_that_failed() -> None:
    slow = Actor(written=(None, None, Written({"b": "2"})))
    made = learners_of(Actor(written=(Written({"a": "1"}),)), slow)
    assert asyncio.run(made.saved("p")) == {"a": "1", "b": "2"}
    failed = learners_of(Actor(written=(Written({"a": "1"}),)), Actor(written=(Written({}, "E"),)))
    with pytest.raises(CheckpointError, match="rank 1 of 'p' failed to save: E"):
        asyncio.run(failed.saved("p"))


def test_a_disk_that_hangs_ends_a_save_with_a_message() -> None:
    made = learners_of(Actor(written=(Written({"a": "1"}),)), Actor(written=(None,)))
    made._watchdog.bound = 0.2
    with pytest.raises(CheckpointError, match=r"ranks 1 of 'p' .* \(cluster.learner_timeout = 0.2"):
        asyncio.run(asyncio.wait_for(made.saved("p"), 30))


@pytest.mark.parametrize("method", ["save", "load"])
def test_ranks_that_hang_in_a_save_or_a_load_are_reported(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: Any) -> None:
        await asyncio.sleep(60)

    actor = Actor()
    monkeypatch.setattr(actor, "_save", hang)
    monkeypatch.setattr(actor, "_call", hang)
    made = learners_of(actor)
    made._watchdog.bound = 0.2
    argument = (tmp_path, True) if method == "save" else ({},)
    with pytest.raises(ClusterError, match=f"made no progress in '{method}'"):
        asyncio.run(asyncio.wait_for(getattr(made, method)("p", *argument), 30))


def test_engines_get_a_full_model_as_one_file(tmp_path: Path) -> None:
    for rank, content in enumerate((b"ab", b"cd")):
        shards = {"shards": json.dumps({"w": [2 * rank, [4]]})}
        header = make_header([("w", "U8", [2])], shards)
        (tmp_path / f"part{rank}").write_bytes(header + content)
    parts = Shards((tmp_path / "part0", tmp_path / "part1"))
    whole = make_header([("w", "U8", [4])]) + b"abcd"
    (tmp_path / "one").write_bytes(whole)
    hashes = set()
    for content in (parts, tmp_path / "one", whole):
        for remote in (False, True):
            files = {MODEL_FILE: content, OPTIMIZER_FILE: b"o"}
            given, weight_hash = asyncio.run(engine_files(files, remote))
            in_memory = remote or isinstance(content, bytes)
            assert isinstance(given[MODEL_FILE], bytes if in_memory else Path)
            assert read_content(given[MODEL_FILE]) == whole
            assert set(given) == {MODEL_FILE}
            hashes.add(weight_hash)
    assert len(hashes) == 1
    given, _ = asyncio.run(engine_files({MODEL_FILE: tmp_path / "one"}, False))
    (tmp_path / "one").unlink()
    assert read_content(given[MODEL_FILE]) == whole, "engines restart after a checkpoint is deleted"


def test_a_learner_that_was_stopped_while_it_saved_is_lost() -> None:
    """Its recovery stops the ranks between two questions about the save."""

    async def run() -> None:
        made = learners_of(Actor(written=(None,)))
        saving = asyncio.create_task(made.saved("p"))
        await asyncio.sleep(0)
        made.actors = []
        with pytest.raises(LearnerLostError, match="was stopped before it answered 'saved'"):
            await asyncio.wait_for(saving, 30)

    asyncio.run(run())


def test_a_rank_that_dies_before_a_save_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(_: Path) -> bool:
        raise RayActorError

    async def nodes_within(_: float) -> list[Any]:
        return []

    actor = Actor()
    monkeypatch.setattr(actor, "_sees", die)
    monkeypatch.setattr(failures, "nodes_within", nodes_within)
    with pytest.raises(LearnerLostError):
        asyncio.run(learners_of(actor).save("p", tmp_path, True))
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_hangs_before_a_save_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: Path) -> bool:
        await asyncio.sleep(60)
        return True

    actor = Actor()
    monkeypatch.setattr(actor, "_sees", hang)
    made = learners_of(actor)
    made._watchdog.bound = 0.2
    with pytest.raises(LearnerLostError, match="made no progress in 'sees'"):
        asyncio.run(asyncio.wait_for(made.save("p", tmp_path, True), 30))
