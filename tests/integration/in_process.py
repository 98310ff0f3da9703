"""The real small engine and the real learner in the process of the test, without Ray."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fakes import Ref
from ranks import SavesInProcess

from pettingllms.cluster.engine_client import Queue
from pettingllms.cluster.placement import engine_specs, learner_spec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.learners.learner import Learner
from pettingllms.runtime.busy_clock import BusyClock, Use
from pettingllms.runtime.resources import CoreShare, wanted_threads


class LocalEngines:
    def __init__(self, spec: Any) -> None:
        self._engine = TorchEngine(spec)
        self._queue = Queue(self._engine.sample_many)
        self.sample = self._queue.sample
        self.start, self.sleep, self.wake = (
            self._engine.start,
            self._engine.sleep,
            self._engine.wake,
        )

    async def stop(self) -> None:
        await self._queue.close()
        self._engine.stop()

    async def publish(self, policy: str, new: Any) -> None:
        files = new.files if isinstance(new.files, dict) else await new.files
        await getattr(self._engine, new.method)(policy, new.version, files)

    async def versions(self) -> list[dict[str, int]]:
        return [await self._engine.versions()]

    async def score_together(self, policies: Any, given: Any) -> list[Any]:
        return [await self._engine.score_together(policies, given)]

    async def score(self, policy: str, given: Any) -> list[Any]:
        return [await self._engine.score(policy, given)]

    async def use(self) -> list[Use]:
        return []


class LocalLearners(SavesInProcess):
    def __init__(self, spec: Any) -> None:
        self._spec = spec
        self.clock = BusyClock()

    async def start(self, loopback: bool) -> None:
        self._learner = self.learner = Learner(self._spec)

    async def stop(self) -> None: ...

    def watch(self, config: Any, notify: Any) -> None: ...

    async def call(self, method: str, *args: Any) -> Any:
        return getattr(self._learner, method)(*args)

    async def files(self, policy: str) -> tuple[Ref, str]:
        files, mark = self._learner.files(policy)
        return Ref(files), mark


@contextmanager
def in_process() -> Iterator[None]:
    """Teams that are started inside have their engines and learners here."""
    from pettingllms.cluster import team, weight_sync

    def start_processes(self: Any, models: Any, learning: bool, sampling: bool) -> None:
        self.config = self.config.for_device("cpu")
        for at, group in enumerate(self._groups):
            model = models[group.name]
            if sampling:
                shares = [CoreShare(at, len(self._groups), wanted_threads())]
                (spec,) = engine_specs(self.config, group, model, "cpu", shares)
                self._engines[group.name] = LocalEngines(spec)
            if learning and group.trained:
                spec = learner_spec(self.config, group, model, "cpu")
                self._learners[group.name] = LocalLearners(spec)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(team.Team, "_start_processes", start_processes)
        patch.setattr(weight_sync, "transfer_of", lambda *_: None)  # this engine takes only files
        yield
