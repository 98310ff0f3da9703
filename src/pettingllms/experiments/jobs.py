"""Run jobs sequentially, or several at a time in separate processes.

Arms of an experiment share only their initial models, and a small run seldom uses more than one
core.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from pettingllms.errors import ExperimentError, PettingError
from pettingllms.judges.local_verifier import folder_problem
from pettingllms.models.folder import is_model
from pettingllms.runtime.resources import num_cores

Notify = Callable[[str], None]
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of work that writes its result to disk."""

    name: str
    do: Callable[[], None]
    """A module-level function or a partial of one, so that it can be pickled."""
    needs: Sequence[Path] = ()
    """Models that the job needs."""

    def is_ready(self) -> bool:
        """Whether all models and verifiers exist."""
        return all(is_model(path) or not folder_problem(path) for path in self.needs)


def run_jobs(jobs: Sequence[Job], num_at_once: int, notify: Notify) -> None:
    """Run all jobs; a job runs after those that make its models.

    With several at a time, a failure is reported at once. Running jobs finish, to keep their
    training, and no new job starts.
    """
    if num_at_once == 1:
        for job in jobs:
            job.do()
        return
    failed = _run_parallel(list(jobs), num_at_once, notify)
    if failed:
        names = ", ".join(f"'{job.name}'" for job in failed)
        raise ExperimentError(
            f"{names} failed for the reason above; run the same command to resume"
        )


def _run_parallel(waiting: list[Job], num_at_once: int, notify: Notify) -> list[Job]:
    """Run jobs in processes and return those that failed."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, num_cores() // num_at_once)
    running: list[tuple[Job, SpawnProcess]] = []
    failed: list[Job] = []
    try:
        while running or (waiting and not failed):
            ready = [] if failed else [job for job in waiting if job.is_ready()]
            for job in ready[: num_at_once - len(running)]:
                process = context.Process(target=_run_in_process, args=(job, threads, notify))
                process.start()
                running.append((job, process))
                waiting.remove(job)
            if not running:
                notify(f"{waiting[0].name}: no job creates the models that it needs")
                return waiting
            wait([process.sentinel for _, process in running])
            ended = [(job, process) for job, process in running if process.exitcode is not None]
            failed += [job for job, process in ended if process.exitcode]
            running = [each for each in running if each not in ended]
    except KeyboardInterrupt:
        _interrupt()
        raise
    return failed


def _interrupt() -> None:
    """Forward every Ctrl-C, and wait until all jobs have saved their state."""
    while running := multiprocessing.active_children():
        try:
            for number in [process.pid for process in running if process.pid]:
                os.kill(number, signal.SIGINT)
            for process in running:
                process.join()
        except KeyboardInterrupt:
            continue


def _run_in_process(job: Job, threads: int, notify: Notify) -> None:
    """Entry point of a job's process."""
    os.setpgid(0, 0)  # only the parent gets the terminal's Ctrl-C
    os.environ.setdefault(THREADS, str(threads))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        job.do()
    except (PettingError, OSError) as error:
        notify(f"{job.name}: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
