"""Engines that measure how busy they are."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from pettingllms.inference.engines.base import EngineSpec, InferenceEngine
from pettingllms.runtime.busy_clock import BusyClock, Use
from pettingllms.types import Failed, Sample, SampleRequest


def metered(engine: type[InferenceEngine]) -> type[InferenceEngine]:
    """The same engine with a method `use`. Replies that are sampled count, fixed ones do not."""
    base: Any = engine
    lockstep = engine.capabilities.lockstep

    class Metered(base):  # type: ignore[misc]
        def __init__(self, spec: EngineSpec) -> None:
            super().__init__(spec)
            self._busy_clock = BusyClock(spec.config.max_num_seqs)

        async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
            # In lockstep, `sample` calls `sample_many`; otherwise it is the other way round.
            with nullcontext() if lockstep else self._busy_clock.busy(request.num_samples):
                found: Sequence[Sample | Failed] = await super().sample(request)
                return found

        async def sample_many(
            self, requests: Sequence[SampleRequest]
        ) -> list[Sequence[Sample | Failed]]:
            num_slots = sum(request.num_samples for request in requests)
            with self._busy_clock.busy(num_slots) if lockstep else nullcontext():
                found: list[Sequence[Sample | Failed]] = await super().sample_many(requests)
                return found

        async def use(self) -> Use:
            return self._busy_clock.use()

    Metered.__name__ = engine.__name__  # the name of its process
    return Metered
