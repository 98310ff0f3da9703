"""The fault campaign: kinds of faults injected into real runs, three seeds each.

`pytest -m faults --faults-table tests/faults/RESULTS.md` runs all of it and writes
the table. Each quick test has one kind or two; the slow ones have all the others. Faults between
machines are in `test_machines.py`.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

import injections
from campaign import (
    Fault,
    Run,
    Table,
    base_config,
    corrupt_newest,
    episodes_of,
    free_disk,
    is_equal,
    num_steps,
    planned,
)
from running import metrics_of
from servers import serving

from pettingllms.types import read_episodes

pytestmark = [pytest.mark.engine, pytest.mark.faults]
SEEDS = (1, 2, 3)
STEPS = num_steps(9)
"""Of all runs with several faults, which share undisturbed ones."""
HOURS = 3600.0
LEARNER, ENGINE, WORKER = "ray::NodeRank", "ray::TorchEngine", "ray::RolloutWorker"
RESTARTED = r".{0,5000}?the learner was restarted in [\d.]+ s, and the run continues with step \d+"
DIED = r"rank 1 of the learner of 'p', in '\w+', failed"
FAILING_SECONDS, SLOW_SECONDS = 2.0, 4.0


def kill(name: str, title: str, told: str, number: int = 0, **more: Any) -> Fault:
    options = {"title": title, "number": number}
    return Fault(name, f"kill -9 of {title}", "kill", told, options, **more)


def stop(name: str, title: str, told: str, number: int = 0, **more: Any) -> Fault:
    options = {"title": title, "number": number}
    return Fault(name, f"SIGSTOP of {title}", "stop", told, options, **more)


BEFORE_SAVING = ("sampling", "learning", "publishing")
LEARNER_KILLED = kill("learner rank killed", LEARNER, DIED + RESTARTED, number=1)
ENGINE_KILLED = kill("engine killed", ENGINE, r"an engine for tiny died; restarting it")
WORKER_KILLED = kill(
    "rollout worker killed", WORKER, r"a rollout worker died; restarting it", phases=BEFORE_SAVING
)
SILENT = r"hangs: it has not answered for 30 s \(inference.engine_timeout\); restarting it"
DRIVER_KILLED = Fault("driver killed", "kill -9 of the program", "kill_driver", "", ends=True)
RESUME = r"{0}.{{0,3000}}?pettingllms resume"


def survived(folder: Path, seed: int) -> list[Fault]:
    """Faults that a run survives."""
    hours = -6 if seed % 2 else 6
    clock = {"file": str(folder / "clock"), "text": str(hours * HOURS)}
    return [
        LEARNER_KILLED,
        stop("learner rank hangs", LEARNER, "made no progress in" + RESTARTED, number=1),
        Fault(
            "learner rank out of memory", "the kernel kills a rank in a cgroup without memory",
            "starve", DIED + RESTARTED, {"title": LEARNER, "number": 1}, ("learning",),
        ),
        ENGINE_KILLED,
        stop("engine hangs", ENGINE, "an engine for tiny " + SILENT),
        WORKER_KILLED,
        stop("rollout worker hangs", WORKER, "a rollout worker " + SILENT, phases=("sampling",)),
        Fault("clock jumps", f"by {hours} hours", "write", "", clock),
        Fault(
            "API fails, then is slow", "HTTP 503, then replies after a second", "write", "",
            {"file": str(folder / "api")}, ("sampling",),
        ),
    ]  # fmt: skip


def ending(folder: Path) -> list[Fault]:
    """Faults that end the program; the head comes last, since the others need it."""
    disk = {"folder": str(folder)}
    return [
        DRIVER_KILLED,
        Fault(
            "checkpoint corrupted", "kill -9, then one byte of the newest checkpoint is changed",
            "kill_driver", r"skipped a checkpoint: [^\n]*does not match its hash", ends=True,
            between=corrupt_newest,
        ),
        kill("raylet killed", "raylet", RESUME.format(r"\(raylet\)"), ends=True),
        Fault(
            "disk full", "no space left in the run folder", "fill", RESUME.format("No space left"),
            disk, ends=True, between=free_disk,
        ),
        Fault(
            "head killed", "kill -9 of Ray's head", "kill_head",
            RESUME.format("the head of the Ray cluster"), ends=True,
        ),
    ]  # fmt: skip


class Api:
    """The model that answers for the second role; it fails and is slow once a file exists."""

    def __init__(self) -> None:
        self.url = ""
        self.flag = Path("/nonexistent")

    def answer(self, body: dict[str, Any]) -> Any:
        seconds = time.time() - self.flag.stat().st_mtime if self.flag.exists() else 1e9
        if seconds < FAILING_SECONDS:
            return 503, "overloaded"
        if seconds < SLOW_SECONDS:
            time.sleep(1)
        return f"{len(str(body['messages']))} and {len(str(body['messages'])) + 1}"


@pytest.fixture(scope="session")
def api() -> Iterator[Api]:
    made = Api()
    with serving(made.answer) as server:
        made.url = server.url
        yield made


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pettingllms.models import make_tiny

    texts = [f"You are role{n % 2}. Count on from {n}: It was said: '{n}'." for n in range(99)]
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return make_tiny(folder, texts=texts, hidden_size=64, vocab_size=400)


@pytest.fixture(scope="session")
def undisturbed(
    model: Path, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int, int], Path]:
    """Runs without faults, by seed and number of steps."""
    made: dict[tuple[int, int], Path] = {}

    def run(seed: int, steps: int) -> Path:
        if (seed, steps) not in made:
            folder = tmp_path_factory.mktemp("undisturbed")
            one = Run(folder, base_config(model, api.url, seed, steps))
            assert one.go() == 0, one.said(1)[-3000:]
            made[seed, steps] = one.out
        return made[seed, steps]

    return run


@pytest.fixture
def add(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Put rows into the table, if one was asked for."""
    page = request.config.getoption("--faults-table")
    return Table(Path(page)).add if page else print


def check(run: Run, seed: int, undisturbed: Path, add: Callable[..., None]) -> None:
    """The run had all its faults, explained them, and is what it would have been without."""
    rows = run.rows(seed, undisturbed)
    add(rows)
    assert all((row.lost, row.doubled) == (0, 0) for row in rows)
    assert all(row.equal for row in rows)
    for program in range(1, run.num_programs + 1):
        assert "Traceback" not in run.said(program)


QUICK = {
    "learner": [LEARNER_KILLED],
    "engine and worker": [ENGINE_KILLED, WORKER_KILLED],
    "driver": [DRIVER_KILLED],
}


@pytest.mark.parametrize("name", QUICK)
def test_a_run_continues_as_if_nothing_had_happened(
    name: str, model: Path, api: Api, undisturbed: Any, tmp_path: Path
) -> None:
    seed, steps = 0, num_steps(2)
    run = Run(tmp_path, base_config(model, api.url, seed, steps), planned(QUICK[name], seed))
    codes = run.to_its_end()
    assert codes[-1] == 0, run.said(len(codes))[-3000:]
    check(run, seed, undisturbed(seed, steps), print)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_survives_what_its_processes_suffer(
    seed: int, model: Path, api: Api, undisturbed: Any, tmp_path: Path, add: Any
) -> None:
    faults = survived(tmp_path, seed)
    if not os.access(injections.memory_cgroups(), os.W_OK):
        print("no out-of-memory kill: cgroups are not writable")
        faults = [one for one in faults if one.inject != "starve"]
    steps = STEPS
    api.flag = tmp_path / "api"
    run = Run(tmp_path, base_config(model, api.url, seed, steps), planned(faults, seed))
    run.variables |= {"PETTINGLLMS_CLOCK": str(tmp_path / "clock")}
    run.first_on_path = str(Path(__file__).parent / "clock")
    assert run.to_its_end() == [0], run.said(1)[-5000:]
    walls = run.walls()
    assert abs(walls[-1] - walls[0]) > 5 * HOURS, "the clock did not jump"
    check(run, seed, undisturbed(seed, steps), add)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_that_ends_resumes_exactly(
    seed: int, model: Path, api: Api, undisturbed: Any, tmp_path: Path, add: Any
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        faults = ending(disk)
        if not os.path.ismount(disk):
            print("no full disk: a tmpfs cannot be mounted")
            faults = [one for one in faults if one.inject != "fill"]
        steps = STEPS
        config = base_config(model, api.url, seed, steps)
        run = Run(tmp_path, config, planned(faults, seed), disk / "run")
        codes = run.to_its_end()
        assert codes[-1] == 0, run.said(len(codes))[-5000:]
        assert 0 not in codes[:-1], codes
        check(run, seed, undisturbed(seed, steps), add)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A separate file system in a folder, if this user can mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    unmount = ["umount", "--lazy", str(folder)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield folder
    finally:
        if is_mounted:
            subprocess.run(unmount, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_an_environment_that_hangs_costs_its_episode(
    seed: int, model: Path, api: Api, tmp_path: Path, add: Any
) -> None:
    from refereed import REFEREE

    fault = stop("environment hangs", REFEREE, "", phases=("sampling",))
    config = base_config(
        model, api.url, seed, num_steps(1),
        env={"id": f"{Path(__file__).parent / 'refereed.py'}:Refereed"}, rollout={"env_timeout": 3},
    )  # fmt: skip
    run = Run(tmp_path, config, planned([fault], seed))
    assert run.to_its_end() == [0], run.said(1)[-5000:]
    add(run.rows(seed, None))
    failures = [episode.failure for episode in read_episodes(run.out) if episode.failure]
    assert len(failures) == 1
    assert failures[0].owner == "environment"
    assert "did not return within 3 s" in failures[0].reason
    assert len(metrics_of(run.out)) == num_steps(1)
    assert run.recovery(fault.name) < 30


NUM_KILLS = int(os.environ.get("PETTINGLLMS_KILLS", "50"))


@pytest.mark.slow
@pytest.mark.long
def test_a_program_that_is_killed_again_and_again_resumes_exactly(
    model: Path, api: Api, tmp_path: Path
) -> None:
    """Kill -9 at random moments of steps, saves and publications, every second step one."""
    kills = [replace(DRIVER_KILLED, name=f"kill {number}") for number in range(NUM_KILLS)]
    light = {"rollout": {"num_workers": 0}, "learner": {"num_ranks": 1}, "train": {"save_every": 2}}
    config = base_config(model, api.url, 5, num_steps(NUM_KILLS))
    for name, values in light.items():
        config[name] |= values
    whole = Run(tmp_path / "whole", config)
    assert whole.go() == 0, whole.said(1)[-3000:]
    run = Run(tmp_path / "killed", config, planned(kills, 5))
    codes = run.to_its_end()
    assert codes == [*[-signal.SIGKILL] * NUM_KILLS, 0], codes
    print(run.killed_in())
    assert is_equal(run.out, whole.out)
    assert episodes_of(run.out) == episodes_of(whole.out)
