"""Checkpoints in the background: learners copy their state, and write while training goes on.

One checkpoint is written at a time. It is complete once its manifest is written, after all ranks
are done. A run that is killed before resumes from the previous one.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pettingllms.config import RunConfig
from pettingllms.errors import LearnerLostError
from pettingllms.policies.files import Files
from pettingllms.runs.checkpoint import State, Writer
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.remote_folder import RemoteFolder

if TYPE_CHECKING:
    from pettingllms.cluster.learners import Learners
    from pettingllms.cluster.team import Team

STOP_SECONDS = 300.0
"""How long a run that ends by a failure waits for a save in the background."""


class Saver:
    """Saves checkpoints of a run, and copies them to `train.checkpoint_folder`."""

    def __init__(self, config: RunConfig, folder: RunFolder, notify: Callable[[str], None]) -> None:
        self._config = config.train
        self._folder = folder
        self._notify = notify
        remote = config.train.checkpoint_folder
        self._remote = RemoteFolder(remote) if remote else None
        self._save: asyncio.Task[None] | None = None
        self._seconds = 0.0

    async def start(self, team: "Team", names: Sequence[str]) -> None:
        """Find out which learners reach the run folder, and report those that do not."""
        root = self._folder.path.absolute()
        for name in names:
            reach = await team.learners_of(name).reach(root)
            if far := [str(rank) for rank, one in enumerate(reach) if not one]:
                self._notify(
                    f"ranks {', '.join(far)} of '{name}' do not reach {root}, so Ray carries their "
                    "part of each checkpoint; put the run on a disk that all machines share (--out)"
                )

    async def save(self, team: "Team", names: Sequence[str], state: State) -> None:
        """Begin a checkpoint of what learns; return once the one before is complete and all
        learners have copied their state."""
        with self._waiting():
            await self._finish()
            writer = self._folder.checkpoint(state)
            if writer is None:
                return
            for name in names:
                folder = writer.folder(name)
                await team.learners_of(name).save(name, folder, self._config.background_saves)
            fixed = {}
            for name in team.snapshots.sources:
                fixed[name] = None if writer.can_carry(name) else await team.snapshots.files(name)
            learners = {name: team.learners_of(name) for name in names}
            self._save = asyncio.create_task(self._complete(writer, learners, fixed, state.good))
            if not self._config.background_saves:
                await self._finish()

    def check(self) -> None:
        """Raise what a save in the background failed with."""
        if self._save is not None and self._save.done():
            save, self._save = self._save, None
            save.result()

    async def finish(self) -> None:
        """Wait until the last checkpoint is complete; raise what it failed with."""
        with self._waiting():
            await self._finish()

    async def settle(self) -> None:
        """Wait until no checkpoint is under way; one whose learner was lost stays incomplete."""
        if self._save is not None:
            await asyncio.wait([self._save])
            with suppress(LearnerLostError):
                self.check()

    async def stop(self) -> None:
        """As `finish`, but report a failure, because the run ends for another reason."""
        if self._save is None:
            return
        done, _ = await asyncio.wait([self._save], timeout=STOP_SECONDS)
        if not done:
            self._save.cancel()
            self._notify(f"the last checkpoint was not saved within {STOP_SECONDS:g} s")
        elif error := self._save.exception():
            self._notify(f"the last checkpoint was not saved: {error}")

    def take_seconds(self) -> float:
        """How long the loop has waited for checkpoints since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    async def _finish(self) -> None:
        if self._save is not None:
            await asyncio.wait([self._save])
            self.check()

    async def _complete(
        self,
        writer: Writer,
        learners: Mapping[str, "Learners"],
        fixed: Mapping[str, Files | None],
        good: int,
    ) -> None:
        """Wait for the learners, write what does not train, and then the manifest."""
        for name, some in learners.items():
            writer.record(name, await some.saved(name))
        for name, files in fixed.items():
            if files is None:
                await asyncio.to_thread(writer.carry, name)
            else:
                await asyncio.to_thread(writer.add, name, files)
        keep = self._config.keep_checkpoints, self._config.keep_every
        folder = await asyncio.to_thread(writer.finish, *keep)
        if self._remote is not None:
            problem = await asyncio.to_thread(self._remote.copy, folder, *keep, good)
            if problem:
                self._notify(f"ALARM {problem}")

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - start
