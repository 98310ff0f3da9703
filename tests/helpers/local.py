"""The loop and its team over real learners and real small engines, all of it in this process."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from fakes import Ref
from ranks import SavesInProcess

from pettingllms.cluster.placement import engine_specs, learner_spec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.learners.learner import Learner
from pettingllms.runtime.busy_clock import BusyClock, Use
from pettingllms.runtime.resources import CoreShare, wanted_threads
from pettingllms.types import SampleRequest


class LocalLearners(SavesInProcess):
    """A learner without Ray."""

    def __init__(self, spec: Any) -> None:
        self._learner = self.learner = Learner(spec)
        self.clock = BusyClock()

    async def start(self, loopback: bool) -> None: ...

    async def stop(self) -> None: ...

    def watch(self, config: Any, notify: Any) -> None: ...

    async def call(self, method: str, *args: Any) -> Any:
        return getattr(self._learner, method)(*args)

    async def files(self, policy: str) -> tuple[Ref, str]:
        files, mark = self._learner.files(policy)
        return Ref(files), mark


class LocalEngines:
    """An engine without Ray; it is asked for one reply after another."""

    def __init__(self, spec: Any) -> None:
        self.engine = TorchEngine(spec)

    def __getattr__(self, method: str) -> Any:
        return getattr(self.engine, method)

    async def sample(self, request: SampleRequest) -> Any:
        return await self.engine.sample(request)

    async def stop(self) -> None:
        self.engine.stop()

    async def publish(self, policy: str, new: Any) -> None:
        files = new.files if isinstance(new.files, dict) else await new.files
        await getattr(self.engine, new.method)(policy, new.version, files)

    async def score(self, policy: str, given: Any) -> list[Any]:
        return [await self.engine.score(policy, given)]

    async def score_together(self, policies: Any, given: Any) -> list[Any]:
        return [await self.engine.score_together(policies, given)]

    async def versions(self) -> list[dict[str, int]]:
        return [await self.engine.versions()]

    async def use(self) -> list[Use]:
        return []


@contextmanager
def in_this_process() -> Iterator[list[LocalEngines]]:
    """Teams of this process alone; the engines that were made."""
    from pettingllms.cluster import checks as refusals
    from pettingllms.cluster import inference_team as playing
    from pettingllms.cluster import team, weight_sync

    made: list[LocalEngines] = []

    def start_processes(self: Any, models: Any, learning: bool, sampling: bool) -> None:
        self.config = self.config.for_device("cpu")
        for at, group in enumerate(self._groups):
            shares = [CoreShare(at, 1, wanted_threads())]
            (spec,) = engine_specs(self.config, group, models[group.name], "cpu", shares)
            self._engines[group.name] = LocalEngines(spec)
            made.append(self._engines[group.name])
            if learning and group.trained:
                spec = learner_spec(self.config, group, models[group.name], "cpu")
                self._learners[group.name] = LocalLearners(spec)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(team.Team, "_start_processes", start_processes)
        patch.setattr(weight_sync, "transfer_of", lambda *_: None)  # this engine takes only files
        patch.setattr(team, "find_model", Path)
        patch.setattr(refusals, "find_model", Path)
        patch.setattr(playing, "ray_running", lambda config: nullcontext())
        yield made
