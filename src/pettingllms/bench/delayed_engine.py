"""An engine without a model, which replies after a fixed time, for benchmarks and tests."""
# ruff: noqa: ARG002 - the contract of engines

import asyncio
from collections.abc import Sequence

import numpy as np

from pettingllms.inference.engines.base import Capabilities, EngineSpec, InferenceEngine
from pettingllms.policies.files import Files
from pettingllms.types import Failed, LogProbs, Sample, SampleRequest, ScoreRequest
from pettingllms.types.turns import Finish

NUM_IDS = 97
"""Size of the vocabulary that it draws from."""


class DelayedEngine(InferenceEngine):
    """Replies with random ids that depend only on the request's prompt and seed."""

    capabilities = Capabilities(lora=True, logprobs=True, weight_transfer=True)
    process_gib = 0.1
    seconds = 0.2
    """Time per reply, however many are decoded."""

    def __init__(self, spec: EngineSpec) -> None:
        self._versions = dict.fromkeys(spec.policies, 0)
        self.num_in_flight = self.most_in_flight = 0

    async def start(self) -> None:
        """There is nothing to load."""

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        self.num_in_flight += request.num_samples
        self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.num_in_flight -= request.num_samples
        rng = np.random.default_rng([request.seed, int(request.prompt_ids[-1])])
        return [self._reply(request, rng) for _ in range(request.num_samples)]

    async def score(self, policy: str, given: ScoreRequest, temperature: float = 1.0) -> LogProbs:
        return np.full(len(given.response_ids), -temperature, dtype=np.float32)

    async def versions(self) -> dict[str, int]:
        return dict(self._versions)

    async def publish_adapter(self, policy: str, version: int, files: Files) -> None:
        self._versions[policy] = version

    async def publish_weights(self, policy: str, version: int, files: Files) -> None:
        self._versions[policy] = version

    async def most(self) -> int:
        """The largest number of replies that were in flight at once."""
        return self.most_in_flight

    async def forget(self) -> None:
        """Start to count again."""
        self.most_in_flight = self.num_in_flight

    async def now(self) -> int:
        """The number of replies in flight."""
        return self.num_in_flight

    def _reply(self, request: SampleRequest, rng: np.random.Generator) -> Sample:
        number = int(rng.integers(1, request.max_tokens + 1))
        ids = rng.integers(NUM_IDS, size=number).astype(np.int32)
        logprobs = -rng.random(number, dtype=np.float32)
        finish: Finish = "length" if number == request.max_tokens else "stop"
        return Sample(ids, logprobs, self._versions[request.policy], finish)
