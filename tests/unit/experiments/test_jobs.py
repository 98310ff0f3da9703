"""Jobs side by side: what comes after what, and what is left of the others when one fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from labs import EXPERIMENT, RUN, Lab

from pettingllms.errors import ExperimentError
from pettingllms.experiments.jobs import Job, run_jobs
from pettingllms.experiments.plan import make_plan

SECONDS = 120.0
"""By then anything that comes at all has come."""


def make_model(path: Path, waits_for: Path | None = None) -> None:
    """Leave a model behind, once something else is there."""
    if waits_for is not None:
        _wait(waits_for)
    path.mkdir()
    (path / "config.json").write_text(str(os.getpid()))


def fail(because: str, note: Path) -> None:
    """Fail, after a note of which process it was."""
    _note(note)
    raise ExperimentError(because)


def make_model_after(note: Path, path: Path) -> None:
    """Leave a model behind, once the process of the note was seen to end by the one above it."""
    _wait(note)
    _wait_for_end(int(note.read_text()))
    make_model(path)


def say_to(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text + "\n")


def _wait(path: Path) -> None:
    end = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)


def _wait_for_end(process: int) -> None:
    end = time.monotonic() + SECONDS
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < end, "a job outlived its command"
        time.sleep(0.01)


def _note(path: Path) -> None:
    part = path.with_suffix(".part")
    part.write_text(str(os.getpid()))
    part.rename(path)


@pytest.fixture
def notify(tmp_path: Path) -> partial[None]:
    return partial(say_to, tmp_path / "said")


def test_two_jobs_run_at_once_in_separate_processes(tmp_path: Path, notify: partial[None]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    # The first one in the list can only end after the second one.
    jobs = [Job("1", partial(make_model, one, two)), Job("2", partial(make_model, two))]
    run_jobs(jobs, 2, notify)
    processes = {int((path / "config.json").read_text()) for path in (one, two)}
    assert len(processes - {os.getpid()}) == 2


def test_a_job_waits_for_the_models_that_it_begins_with(
    tmp_path: Path, notify: partial[None]
) -> None:
    start, other = tmp_path / "start", tmp_path / "other"
    # Were the second job begun at once, `start` would never be made: both places are taken.
    jobs = [
        Job("other", partial(make_model, other, start)),
        Job("arm", partial(make_model, tmp_path / "arm", start), needs=[start]),
        Job("start", partial(make_model, start)),
    ]
    run_jobs(jobs, 2, notify)
    assert (tmp_path / "arm" / "config.json").is_file()


def test_one_that_fails_is_named_and_leaves_its_neighbour_in_peace(
    tmp_path: Path, notify: partial[None]
) -> None:
    note, there, late = tmp_path / "note", tmp_path / "there", tmp_path / "late"
    # The neighbour ends after the failure is known; what comes later is not begun.
    jobs = [
        Job("bad", partial(fail, "no room", note)),
        Job("good", partial(make_model_after, note, there)),
        Job("later", partial(make_model, late)),
    ]
    with pytest.raises(ExperimentError, match=r"'bad' failed .* same command to resume"):
        run_jobs(jobs, 2, notify)
    assert (tmp_path / "said").read_text() == "bad: no room\n"
    assert there.is_dir()
    assert not late.exists()


def test_a_process_that_is_killed_has_failed(tmp_path: Path, notify: partial[None]) -> None:
    with pytest.raises(ExperimentError, match="'killed'"):
        run_jobs([Job("killed", partial(os.abort))], 2, notify)


def test_models_that_nothing_makes_are_not_waited_for(
    tmp_path: Path, notify: partial[None]
) -> None:
    with pytest.raises(ExperimentError, match="'arm'"):
        run_jobs(
            [Job("arm", partial(fail, "begun", tmp_path / "note"), needs=[tmp_path / "gone"])],
            2,
            notify,
        )
    assert "no job creates the models" in (tmp_path / "said").read_text()


def _begin_jobs(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A command that does two jobs at a time, and the process of the one that never ends."""
    script = (
        "import sys, pathlib, test_jobs, functools\n"
        "from pettingllms.experiments.jobs import Job, run_jobs\n"
        "if __name__ == '__main__':\n"
        "    one, never = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])\n"
        "    jobs = [Job('1', functools.partial(test_jobs.make_model, one)),\n"
        "            Job('2', functools.partial(test_jobs.note_and_wait, one, never))]\n"
        "    run_jobs(jobs, 2, print)\n"
    )
    path = folder / "script.py"
    path.write_text(script)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, str(path), str(folder / "one"), str(folder / "never")]
    parent = subprocess.Popen(command, env=env, start_new_session=True)
    note = folder / "one" / "waiting"
    _wait(note)
    return parent, int(note.read_text())


def test_nothing_outlives_the_command(tmp_path: Path) -> None:
    parent, child = _begin_jobs(tmp_path)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _wait_for_end(child)


@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_an_interrupt_comes_to_each_job_once(
    tmp_path: Path, send: Callable[[int, int], None]
) -> None:
    parent, child = _begin_jobs(tmp_path)
    send(parent.pid, signal.SIGINT)  # killpg: as a terminal does
    assert parent.wait(SECONDS / 2) != 0
    _wait_for_end(child)
    assert (tmp_path / "one" / "interrupted").read_text() == "1"


def note_and_wait(folder: Path, never: Path) -> None:
    """Say which process this is, and wait for what never comes; count what interrupts it."""
    _wait(folder / "config.json")
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    _note(folder / "waiting")
    while not interrupts:
        assert not never.exists()
        time.sleep(0.01)
    time.sleep(1.0)  # time for a second one
    (folder / "interrupted").write_text(str(len(interrupts)))
    raise KeyboardInterrupt


def test_a_warm_start_does_not_wait_for_one_whose_name_begins_alike(tmp_path: Path) -> None:
    longer = """
[[warm_starts]]
name = "start_long"
config = "run.toml"
set = ["policies.policy_a.model={model}", "sft.player=random"]
"""
    first, rest = EXPERIMENT.split("[[warm_starts]]", 1)
    rest = rest.replace("{model}", "{start_long}", 1)
    plan = make_plan(Lab(tmp_path, f"{first}{longer}\n[[warm_starts]]{rest}").request(), 1)
    needs = [[path.name for path in plan.models_in(start.config)] for start in plan.starts]
    assert needs == [["model"], ["start-long"]]
    assert [path.name for path in plan.models_in(plan.arms[0].config)] == ["start"]


def test_an_arm_waits_for_the_models_that_its_evaluations_play_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Job] = []
    monkeypatch.setattr(
        "pettingllms.experiments.reproduce.run_jobs", lambda some, *_: jobs.extend(some)
    )
    player = '["policies.b={kind=\\"frozen\\", model=\\"{model}\\"}", "roles.b=b"]'
    one = RUN[: RUN.index("[policies.policy_b]")]
    Lab(tmp_path, EXPERIMENT.replace('["eval.num_tasks=8"]', player), one).run(1)
    needs = {job.name: [path.name for path in job.needs] for job in jobs}
    assert needs["seed 1, GRPO"] == ["model", "start"]


def test_side_by_side_an_experiment_comes_to_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pettingllms.experiments.figure.draw", lambda picture, path: path.touch())
    one_by_one, at_once = Lab(tmp_path / "one"), Lab(tmp_path / "two")
    one_by_one.run(1)
    at_once.run(1, num_at_once=2)
    assert at_once.new_calls() == [], "all was done elsewhere"
    assert at_once.table == one_by_one.table
