"""Jobs one after the other, or several at a time, each in a process of its own.

Arms of an experiment share nothing but the models that they begin with, and one small run seldom
keeps more than a core busy.
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
from pettingllms.models.folder import is_model
from pettingllms.runtime.resources import num_cores

Notify = Callable[[str], None]
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work that leaves its result on disk."""

    name: str
    do: Callable[[], None]
    """To be sent to another process, it must be a function of a module, or a partial of one."""
    needs: Sequence[Path] = ()
    """The models that it begins with."""

    def is_ready(self) -> bool:
        """Whether all models are there."""
        return all(is_model(path) for path in self.needs)


def run_jobs(jobs: Sequence[Job], num_at_once: int, notify: Notify) -> None:
    """Do all of them; a job comes after those that make its models.

    Side by side, one that fails says so at once. Those that run beside it go on to their end, for
    what they have learnt is worth more than the wait, and nothing new is begun.
    """
    if num_at_once == 1:
        for job in jobs:
            job.do()
        return
    failed = _side_by_side(list(jobs), num_at_once, notify)
    if failed:
        names = ", ".join(f"'{job.name}'" for job in failed)
        raise ExperimentError(
            f"{names} did not come to an end, for the reason above; the same command goes on from "
            "there"
        )


def _side_by_side(waiting: list[Job], num_at_once: int, notify: Notify) -> list[Job]:
    """Jobs that failed."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, num_cores() // num_at_once)
    running: list[tuple[Job, SpawnProcess]] = []
    failed: list[Job] = []
    try:
        while running or (waiting and not failed):
            ready = [] if failed else [job for job in waiting if job.is_ready()]
            for job in ready[: num_at_once - len(running)]:
                process = context.Process(target=_do, args=(job, threads, notify))
                process.start()
                running.append((job, process))
                waiting.remove(job)
            if not running:
                notify(f"{waiting[0].name}: nothing made the models that it begins with")
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
    """Pass Ctrl-C on each time that it comes, and wait until all have saved what they have."""
    while running := multiprocessing.active_children():
        try:
            for number in [process.pid for process in running if process.pid]:
                os.kill(number, signal.SIGINT)
            for process in running:
                process.join()
        except KeyboardInterrupt:
            continue


def _do(job: Job, threads: int, notify: Notify) -> None:
    """In the process of a job."""
    os.setpgid(0, 0)  # a terminal's Ctrl-C comes once, from the parent
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
