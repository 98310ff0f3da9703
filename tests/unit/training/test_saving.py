"""Checkpoints in the background: the loop goes on, waits for one at a time, and hears of faults."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeLearners, SavesFiles, Watched, in_memory, train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import CheckpointError
from pettingllms.policies.files import MODEL_FILE
from pettingllms.runs.checkpoint import State, checkpoints, open_checkpoint
from pettingllms.runs.folder import RunFolder
from pettingllms.training import saving
from pettingllms.training.saving import Saver


def config_of(**train: Any) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "rae"},
            "policies": {"p": {"kind": "full", "model": "m"}},
            "rollout": {"num_tasks": 2, "num_samples": 1},
            "train": {"num_steps": 3, "save_every": 1, "keep_checkpoints": 9, **train},
        }
    )


class Gated(SavesFiles):
    """A team whose save is over once its gate is open."""

    def __init__(self, problem: str = "") -> None:
        self.gate = asyncio.Event()
        self.problem = problem
        self.log: list[str] = []

    async def save(self, policy: str, folder: Path, background: bool) -> None:
        self.log.append(f"copied {folder.parents[1].name.split('-')[2][-1]}")
        await super().save(policy, folder, background)

    async def saved(self, policy: str) -> dict[str, str]:
        await self.gate.wait()
        if self.problem:
            raise CheckpointError(self.problem)
        return await super().saved(policy)


def saver_of(path: Path, **train: Any) -> tuple[Saver, list[str]]:
    said: list[str] = []
    return Saver(config_of(**train), RunFolder(path), said.append), said


def steps(path: Path) -> list[str]:
    return [folder.name[-1] for folder in checkpoints(path / "checkpoints")]


async def turns() -> None:
    """Let other tasks run for a while."""
    for _ in range(20):
        await asyncio.sleep(0.005)


def test_the_loop_goes_on_while_a_checkpoint_is_written_and_waits_for_it_before_the_next(
    tmp_path: Path,
) -> None:
    async def check() -> None:
        (saver, _), team = saver_of(tmp_path), Gated()
        await saver.save(team, ["p"], State(step=1))
        saver.check()
        assert steps(tmp_path) == []
        following = asyncio.create_task(saver.save(team, ["p"], State(step=2)))
        await turns()
        assert not following.done()
        assert team.log == ["copied 1"], "what the first save writes was not yet overwritten"
        team.gate.set()
        await following
        await saver.finish()
        assert steps(tmp_path) == ["2", "1"]
        assert saver.take_seconds() >= 0.05
        assert saver.take_seconds() == 0

    asyncio.run(check())


def test_a_checkpoint_is_not_there_before_all_learners_are_done(tmp_path: Path) -> None:
    async def check() -> None:
        (saver, _), team = saver_of(tmp_path), Gated()
        await saver.save(team, ["p", "q"], State(step=1))
        await turns()
        (work,) = (tmp_path / "checkpoints").glob(".unfinished-step-000001-*")
        assert (work / "policies/p" / MODEL_FILE).exists()
        assert RunFolder(tmp_path).open(print) is None
        team.gate.set()
        await saver.finish()
        state, files = RunFolder(tmp_path).open(print) or (None, {})
        assert state == State(step=1)
        assert in_memory(files["q"]) == {MODEL_FILE: b"w"}

    asyncio.run(check())


def test_a_checkpoint_has_the_state_of_its_step_whatever_changes_while_it_is_written(
    tmp_path: Path,
) -> None:
    """An algorithm may return its own dictionary, which the next step updates."""

    async def check() -> None:
        (saver, _), team, baselines = saver_of(tmp_path), Gated(), {"p": 1.0}
        await saver.save(team, ["p"], State(step=1, algorithm=baselines))
        baselines["p"] = 2.0
        team.gate.set()
        await saver.finish()
        state, _ = RunFolder(tmp_path).open(print) or (State(), {})
        assert state.algorithm == {"p": 1.0}

    asyncio.run(check())


def test_without_the_background_a_save_is_complete_when_it_returns(tmp_path: Path) -> None:
    async def check() -> None:
        (saver, _), team = saver_of(tmp_path, background_saves=False), Gated()
        team.gate.set()
        await saver.save(team, ["p"], State(step=1))
        assert steps(tmp_path) == ["1"]

    asyncio.run(check())


def test_a_save_that_failed_raises_at_the_next_step_and_only_once(tmp_path: Path) -> None:
    async def check() -> None:
        (saver, said), team = saver_of(tmp_path), Gated("cannot write F: No space left")
        team.gate.set()
        await saver.save(team, ["p"], State(step=1))
        await turns()
        with pytest.raises(CheckpointError, match="cannot write F: No space left"):
            saver.check()
        saver.check()
        await saver.stop()
        assert said == []

    asyncio.run(check())


def test_a_run_that_ends_otherwise_reports_a_save_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        (saver, said), team = saver_of(tmp_path), Gated("cannot write F: No space left")
        team.gate.set()
        await saver.save(team, ["p"], State(step=1))
        await saver.stop()
        (text,) = said
        assert text == "the last checkpoint was not saved: cannot write F: No space left"
        monkeypatch.setattr(saving, "STOP_SECONDS", 0.05)
        stuck = Gated()
        saver, said = saver_of(tmp_path / "stuck")
        await saver.save(stuck, ["p"], State(step=1))
        await saver.stop()
        assert said == ["the last checkpoint was not saved within 0.05 s"]

    asyncio.run(check())


def test_learners_that_do_not_reach_the_folder_are_named(tmp_path: Path) -> None:
    class Far(SavesFiles):
        async def reach(self, folder: Path) -> list[bool]:
            return [True, False]

    saver, said = saver_of(tmp_path)
    asyncio.run(saver.start(Far(), ["p"]))
    (text,) = said
    assert f"ranks 1 of 'p' do not reach {tmp_path}" in text
    assert "--out" in text


def reply(request: Any, number: int, weights: int) -> str:
    return str(number % 9)


def test_a_run_stops_with_the_path_of_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FakeLearners.saved

    async def saved(self: Any, policy: str) -> dict[str, str]:
        if len(self.trained) >= 2:
            raise CheckpointError("cannot write /run/model.safetensors: No space left on device")
        return await plain(self, policy)

    monkeypatch.setattr(FakeLearners, "saved", saved)
    with pytest.raises(CheckpointError, match=r"/run/model\.safetensors: No space left"):
        train_with_fakes(config_of(num_steps=5), tmp_path / "run", reply)
    assert steps(tmp_path / "run") == ["1"]
    monkeypatch.setattr(FakeLearners, "saved", plain)
    again = train_with_fakes(config_of(), tmp_path / "run", reply)
    assert again.weights == {"p": 5}
    assert steps(tmp_path / "run") == ["5", "4", "3", "2", "1"]


def test_a_save_that_failed_stops_a_run_before_its_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def saved(*_: Any) -> dict[str, str]:
        raise CheckpointError("cannot write F")

    monkeypatch.setattr(FakeLearners, "saved", saved)
    with pytest.raises(CheckpointError, match="cannot write F"):
        train_with_fakes(config_of(num_steps=9, save_every=3), tmp_path / "run", reply)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) in (3, 4)


def test_time_that_the_loop_waits_is_a_metric(tmp_path: Path) -> None:
    run = train_with_fakes(config_of(), tmp_path / "run", reply)
    times = [metrics["time"] for _, metrics in sorted(run.watched.metrics.items())]
    assert times[0]["saving"] == 0
    assert times[1]["saving"] > 0
    assert times[1]["step"] >= times[1]["saving"]


def test_a_run_with_a_remote_folder_is_copied_there(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    remote = tmp_path / "remote"
    config = config_of(checkpoint_folder=str(remote), keep_checkpoints=1, keep_every=2)
    train_with_fakes(config, tmp_path / "run", reply)
    names = sorted(path.name for path in remote.iterdir())
    assert names == ["step-000002", "step-000003"]
    for name in names:
        local, there = (open_checkpoint(p / name) for p in (tmp_path / "run/checkpoints", remote))
        assert local[0] == there[0]
        assert in_memory(local[1]["p"]) == in_memory(there[1]["p"])


KILLED = """
import asyncio, sys, time
from pathlib import Path
from fakes import Watched
from local import in_this_process
from pettingllms.config import load_config
from pettingllms.learners.shard_writer import SyncedFile
from pettingllms.runs.folder import RunFolder
from pettingllms.training.train import _train

root = Path(sys.argv[1])
plain, num_written = SyncedFile.write, 0

def write(self, content):
    global num_written
    num_written += 1
    if num_written > int(sys.argv[2]):
        plain(self, content[: len(content) // 2])
        (root / "in_the_middle").touch()
        time.sleep(600)
    plain(self, content)

SyncedFile.write = write
folder = RunFolder(root / "cut")
with in_this_process():
    asyncio.run(_train(folder.config(), folder, Watched()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_a_run_that_is_killed_in_the_middle_of_a_save_resumes_from_the_one_before(
    kind: str, tmp_path: Path
) -> None:
    """A real process, killed with signal 9 between two bytes of a file."""
    pytest.importorskip("torch")
    pytest.importorskip("peft")
    from local import in_this_process

    from pettingllms.models import make_tiny
    from pettingllms.training import train as loop

    texts = ["X\n123\n456\n789", "O\nX23\n4O6\n78X", "1", "5", "9"] * 20
    model = make_tiny(tmp_path / "tiny", texts=texts, hidden_size=64, vocab_size=320)
    config = parse_config(
        {
            "seed": 5,
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "rae"},
            "policies": {"p": {"kind": kind, "model": str(model), "lr": 1e-2}},
            "rollout": {"num_tasks": 4, "num_samples": 1, "max_reply_tokens": 2},
            "inference": {"engine": "torch", "max_model_len": 64},
            "train": {"num_steps": 3, "save_every": 1, "keep_checkpoints": 9},
        }
    )
    for name in ("whole", "cut"):
        RunFolder(tmp_path / name).create(config)
    num_writes = writes_of_a_save(tmp_path, config, kind)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    arguments = [sys.executable, str(script), str(tmp_path), str(num_writes + num_writes // 2)]
    process = subprocess.Popen(
        arguments, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    wait_for(lambda: (tmp_path / "in_the_middle").exists() or process.poll() is not None)
    assert process.poll() is None, "it ended before the second save"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    cut = tmp_path / "cut"
    assert steps(cut) == ["1"]
    (unfinished,) = (cut / "checkpoints").glob(".unfinished-*")
    assert unfinished.name.startswith(".unfinished-step-000002-")
    assert any(path.stat().st_size for path in unfinished.rglob("*") if path.is_file())
    with in_this_process():
        for name in ("whole", "cut"):
            folder = RunFolder(tmp_path / name)
            asyncio.run(loop._train(config, folder, Watched()))
    final = "checkpoints/step-000003"
    one, other = (open_checkpoint(tmp_path / name / final) for name in ("whole", "cut"))
    assert one[0] == other[0]
    assert in_memory(one[1]["p"]) == in_memory(other[1]["p"])


def writes_of_a_save(root: Path, config: RunConfig, kind: str) -> int:
    """How many blocks one save of the run writes."""
    from local import in_this_process

    from pettingllms.learners.shard_writer import SyncedFile
    from pettingllms.training import train as loop

    one = config.model_copy(update={"train": config.train.model_copy(update={"num_steps": 1})})
    folder = RunFolder(root / "counted")
    folder.create(one)
    plain, count = SyncedFile.write, [0]

    def write(self: SyncedFile, content: memoryview) -> None:
        count[0] += 1
        plain(self, content)

    with pytest.MonkeyPatch.context() as patch, in_this_process():
        patch.setattr(SyncedFile, "write", write)
        asyncio.run(loop._train(one, folder, Watched()))
    return count[0]


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
