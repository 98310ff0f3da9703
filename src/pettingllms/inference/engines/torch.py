"""An engine in plain PyTorch, for models so small that vLLM's overhead dominates.

It starts in seconds and needs only Transformers. As with vLLM, replies carry sampled ids, log-probs
and the policy's version, and new weights apply at once.
"""

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from pettingllms.errors import SamplerError
from pettingllms.inference.chat import stop_ids
from pettingllms.inference.engines.base import (
    UNGUIDED,
    Capabilities,
    EngineSpec,
    InferenceEngine,
    image_failure,
    marked_if_cut,
    too_long,
)
from pettingllms.policies.files import Files, read_content, write_content
from pettingllms.rollouts.routing import lockstep_parts
from pettingllms.types import Failed, LogProbs, Sample, SampleRequest, ScoreRequest
from pettingllms.vision.processor import load_image_processor


class TorchEngine(InferenceEngine):
    """A Transformers model that decodes all requests of a batch in lockstep."""

    capabilities = Capabilities(
        lora=True,
        logprobs=True,
        images=True,
        weight_transfer=True,
        model_copies=True,
        lockstep=True,
    )
    packages = ("torch",)
    process_gib = 0.5

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._versions = dict.fromkeys(spec.policies, 0)
        self._adapters: dict[str, str] = {}
        self._copies: dict[str, Any] = {}
        """Frozen copies of the whole model, by policy."""
        self._adapter_ids = itertools.count()

    async def start(self) -> None:
        os.environ.update(OMP_WAIT_POLICY="passive", HF_HUB_OFFLINE="1")
        import torch
        from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

        from pettingllms.inference.generate import require_supported

        torch.set_num_threads(self._spec.num_threads)
        self._stop_ids = stop_ids(self._spec.model)
        self._image_processor = load_image_processor(self._spec.model)
        auto: Any = (
            AutoModelForCausalLM if self._image_processor is None else AutoModelForImageTextToText
        )
        self._lm = auto.from_pretrained(
            self._spec.model,
            dtype=getattr(torch, self._spec.dtype),
            local_files_only=True,
            use_safetensors=True,
            attn_implementation="sdpa",
        ).eval()
        self._peft: Any = None
        require_supported(self._lm)

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        return (await self.sample_many([request]))[0]

    async def sample_many(
        self, requests: Sequence[SampleRequest]
    ) -> list[Sequence[Sample | Failed]]:
        limit = self._spec.config.max_model_len
        failures = [self._failure(request) for request in requests]
        found: list[Sequence[Sample | Failed]] = [
            [reason] * request.num_samples if reason else []
            for reason, request in zip(failures, requests, strict=True)
        ]
        places = [at for at, reason in enumerate(failures) if reason is None]
        taken = [requests[at] for at in places]
        for part in lockstep_parts(taken, self._spec.config.max_num_seqs):
            asked = [_fitting(taken[at], limit) for at in part]
            for at, samples in zip(part, self._generate(asked[0].policy, asked), strict=True):
                found[places[at]] = marked_if_cut(taken[at], samples, limit)
        return found

    async def score(self, policy: str, given: ScoreRequest, temperature: float = 1.0) -> LogProbs:
        return (await self.score_many(policy, [given], temperature))[0]

    async def score_many(
        self, policy: str, given: Sequence[ScoreRequest], temperature: float = 1.0
    ) -> list[LogProbs]:
        from pettingllms.inference.generate import logprobs_of

        places = sorted(range(len(given)), key=lambda at: sum(map(len, given[at][:2])))
        size = self._spec.config.max_num_seqs
        found: dict[int, LogProbs] = {}
        with self._model_of(policy) as lm:
            for start in range(0, len(places), size):
                part = places[start : start + size]
                some = logprobs_of(
                    lm, [given[at] for at in part], self._image_processor, temperature
                )
                found |= zip(part, some, strict=True)
        return [found[at] for at in range(len(given))]

    async def publish_adapter(self, policy: str, version: int, files: Files) -> None:
        from peft import PeftModel

        # A new name each time; PEFT uses it as a submodule's name, which must have no dot.
        name = f"adapter{next(self._adapter_ids)}"
        with tempfile.TemporaryDirectory(prefix="pettingllms-engine-") as folder:
            for file, content in files.items():
                write_content(content, Path(folder) / file)
            if self._peft is None:
                self._peft = PeftModel.from_pretrained(self._lm, folder, adapter_name=name)
                self._peft.eval()
            else:
                self._peft.load_adapter(folder, adapter_name=name)
        old, self._adapters[policy] = self._adapters.get(policy), name
        if old is not None:
            self._peft.set_adapter(name)
            self._peft.delete_adapter(old)
        self._versions[policy] = version

    async def publish_weights(self, policy: str, version: int, files: Files) -> None:
        self._fill(self._lm, policy, files)
        self._versions[policy] = version

    async def publish_copy(self, policy: str, version: int, files: Files) -> None:
        copy = deepcopy(self._lm)
        self._fill(copy, policy, files)
        self._copies[policy] = copy
        self._versions[policy] = version

    async def drop(self, policy: str) -> None:
        if self._versions.pop(policy, None) is None:
            return
        if self._copies.pop(policy, None) is None:
            old = self._adapters.pop(policy)
            self._peft.set_adapter(next(iter(self._adapters.values())))  # not the one to delete
            self._peft.delete_adapter(old)

    def _fill(self, lm: Any, policy: str, files: Files) -> None:
        from safetensors.torch import load, load_file

        (content,) = files.values()
        weights = load_file(content) if isinstance(content, Path) else load(read_content(content))
        odd = lm.load_state_dict(weights, strict=False)
        tied = set(getattr(lm, "all_tied_weights_keys", {}))
        if odd.unexpected_keys or set(odd.missing_keys) - tied:
            raise SamplerError(f"the new weights of '{policy}' belong to another model: {odd}")

    async def versions(self) -> dict[str, int]:
        return dict(self._versions)

    def _failure(self, request: SampleRequest) -> Failed | None:
        """The failure of a request that cannot be answered; it must not fail its whole batch."""
        limit = self._spec.config.max_model_len
        if request.guide is not None:
            return UNGUIDED
        if len(request.prompt_ids) >= limit:
            return too_long(request, limit)
        return image_failure(self._image_processor, request)

    def _generate(self, policy: str, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
        from pettingllms.inference.generate import generate

        if policy not in self._versions:
            raise SamplerError(f"this engine does not serve '{policy}'")
        version = self._versions[policy]
        with self._model_of(policy) as lm:
            replies = generate(lm, requests, self._stop_ids, self._image_processor)
        return [
            [Sample(ids, logprobs, version, finish) for ids, logprobs, finish in some]
            for some in replies
        ]

    @contextmanager
    def _model_of(self, policy: str) -> Iterator[Any]:
        """The policy's model, with its adapter active, or the base if it has none."""
        if policy in self._copies or self._peft is None:
            yield self._copies.get(policy, self._lm)
        elif policy in self._adapters:
            self._peft.set_adapter(self._adapters[policy])
            yield self._lm
        else:
            with self._peft.disable_adapter():
                yield self._lm


def _fitting(request: SampleRequest, limit: int) -> SampleRequest:
    from dataclasses import replace

    room = limit - len(request.prompt_ids)
    return request if request.max_tokens <= room else replace(request, max_tokens=room)
