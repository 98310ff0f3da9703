"""Recorded replies, for runs that must repeat bit for bit.

An engine's arithmetic depends on what else is in its batch, so two runs with one seed can differ in
the last bits, and then in a token. A recording removes this source of randomness. New requests go
to the engine.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.types import Failed, Sample, Sampler, SampleRequest
from pettingllms.types.sampling import WHOLE

FILE = "replies.jsonl"


class Recording:
    """The recorded replies of a folder. A line that a crash cut short is ignored."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        self._replies: dict[str, list[Any]] = {}
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < len(lines):
            path.write_bytes(b"".join(whole))
        for line in whole:
            self._replies |= json.loads(line)
        self._file = path.open("a", encoding="utf-8")

    def find(self, key: str) -> list[Any] | None:
        """The recorded replies to a request, if any."""
        return self._replies.get(key)

    def add(self, key: str, replies: list[Any]) -> None:
        """Record replies."""
        self._replies[key] = replies
        self._file.write(json.dumps({key: replies}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RecordedSampler:
    """A sampler whose replies are recorded. `weight_hashes`: hashes of the current weights of the
    trained policies. `model`: a hash of the base model."""

    def __init__(
        self, sampler: Sampler, recording: Recording, weight_hashes: Mapping[str, str], model: str
    ) -> None:
        self._sampler = sampler
        self._recording = recording
        self._weight_hashes = weight_hashes
        self._model = model

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        """Return recorded replies, or sample and record; failures are not recorded."""
        key = self._key(request)
        found = self._recording.find(key)
        if found is not None:
            return [_sample(reply) for reply in found]
        samples = await self._sampler.sample(request)
        if not any(isinstance(sample, Failed) for sample in samples):
            self._recording.add(key, [_reply(s) for s in samples if isinstance(s, Sample)])
        return samples

    def _key(self, request: SampleRequest) -> str:
        weight_hash = self._weight_hashes.get(request.policy, "")
        numbers = (request.num_samples, request.max_tokens, request.seed, request.temperature)
        guide = "" if request.guide is None else f" {request.guide}"
        if request.truncation != WHOLE:
            guide += f" {request.truncation}"
        whole = f"{request.policy} {self._model} {weight_hash} {numbers}{guide}"
        digest = hashlib.sha256(whole.encode())
        digest.update(request.prompt_ids.tobytes())
        for image in request.images:
            digest.update(image.digest.encode())
        return digest.hexdigest()


def model_hash(folder: Path) -> str:
    """A hash of a model's weights and settings."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.name == "config.json" or path.suffix in {".safetensors", ".bin"}:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _reply(sample: Sample) -> list[Any]:
    logprobs = None if sample.logprobs is None else sample.logprobs.tolist()
    return [sample.ids.tolist(), logprobs, sample.policy_version, sample.finish, sample.limit]


def _sample(reply: list[Any]) -> Sample:
    ids, logprobs, version, finish, *limit = reply
    given = None if logprobs is None else np.array(logprobs, dtype=np.float32)
    return Sample(np.array(ids, dtype=np.int32), given, version, finish, limit="".join(limit))
