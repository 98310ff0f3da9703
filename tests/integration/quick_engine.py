"""A user's engines in a file, which reply by chance after a moment or once enough requests run."""

import asyncio
from collections.abc import Sequence

from pettingllms.bench.delayed_engine import DelayedEngine
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.types import Failed, Sample, SampleRequest


class QuickEngine(DelayedEngine):
    seconds = 0.02


class CrowdedEngine(DelayedEngine):
    """Replies once CROWD requests are in flight, however long a loaded machine takes to send them.
    After PATIENCE seconds it replies anyway, and `most` shows how many there were."""

    seconds = 0.0
    CROWD = 10_000
    PATIENCE = 300.0

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._arrived = 0
        self._complete = asyncio.Event()

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        self._arrived += request.num_samples
        self.num_in_flight += request.num_samples
        self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
        if self._arrived >= self.CROWD:
            self._complete.set()
        try:
            async with asyncio.timeout(self.PATIENCE):
                await self._complete.wait()
        except TimeoutError:
            self._complete.set()
        finally:
            self.num_in_flight -= request.num_samples
        return await super().sample(request)
