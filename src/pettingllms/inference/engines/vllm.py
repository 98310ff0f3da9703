"""The vLLM engine: a model with its LoRA adapters, each under a versioned name."""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pettingllms.errors import EngineDiedError, SamplerError
from pettingllms.inference.adapter_versions import AdapterVersions, write_files
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
from pettingllms.inference.engines.vllm_options import vllm_environment, vllm_options
from pettingllms.inference.engines.vllm_worker import EXTENSION, FOLDER, receiver_of
from pettingllms.inference.weight_gate import WeightGate
from pettingllms.policies.files import Files
from pettingllms.rollouts.player import NO_IDS
from pettingllms.transfer.link import Link, Manifest
from pettingllms.types import (
    Failed,
    Ids,
    LogProbs,
    Sample,
    SampleRequest,
    ScoreRequest,
    VersionRun,
)
from pettingllms.types.turns import Finish
from pettingllms.vision.processor import load_image_processor

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.outputs import WeightVersionSpan
    from vllm.sampling_params import StructuredOutputsParams


class VllmEngine(InferenceEngine):
    """A vLLM AsyncLLM with multi-LoRA and prefix cache."""

    capabilities = Capabilities(
        lora=True,
        logprobs=True,
        images=True,
        pause=True,
        weight_transfer=True,
        stream=True,
        in_flight=True,
        guided=True,
        gpu=True,
        kv_cache=True,
    )
    packages = ("vllm",)
    image_packages = ("torchvision",)
    process_gib = 1.5
    extension: ClassVar[str] = EXTENSION
    """Class whose methods vLLM adds to its workers."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._versions = dict.fromkeys(spec.policies, 0)
        self._request_ids = itertools.count()
        self._gate = WeightGate()
        self._folder = Path(tempfile.mkdtemp(prefix="pettingllms-engine-"))

    async def start(self) -> None:
        os.environ.update(vllm_environment(self._spec))
        os.environ[FOLDER] = str(self._folder)
        from vllm.config import WeightTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        args = AsyncEngineArgs(
            **vllm_options(self._spec),
            worker_extension_cls=self.extension,
            weight_transfer_config=WeightTransferConfig(backend=receiver_of(self._spec.device)),
        )
        self._stop_ids = stop_ids(self._spec.model)
        self._image_processor = load_image_processor(self._spec.model)
        # Kept requests would mix image embeddings of two versions.
        self._in_flight = self._spec.in_flight and self._image_processor is None
        self._vllm = AsyncLLM.from_engine_args(args)
        self._adapters = AdapterVersions(self._vllm, self._folder)
        await self._label(0)

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        room = self._spec.config.max_model_len - len(request.prompt_ids)
        if room < 1:
            return [too_long(request, self._spec.config.max_model_len)] * request.num_samples
        if request.guide is not None and not self._spec.config.guided:
            return [UNGUIDED] * request.num_samples
        if (failure := image_failure(self._image_processor, request)) is not None:
            return [failure] * request.num_samples
        params = self._params(
            n=request.num_samples,
            max_tokens=min(request.max_tokens, room),
            temperature=request.temperature,
            top_p=request.truncation.top_p,
            top_k=request.truncation.top_k,
            seed=request.seed,
            logprobs=0,
            stop_token_ids=self._stop_ids,
            structured_outputs=None if request.guide is None else _guided(request.guide),
        )
        prompt = ScoreRequest(request.prompt_ids, NO_IDS, request.images)
        output, version = await self._generate(request.policy, prompt, params, self._in_flight)
        samples: list[Sample | Failed] = []
        for reply in sorted(output.outputs, key=lambda reply: reply.index):
            if reply.finish_reason not in ("stop", "length"):
                reason = f"vLLM finished the reply with '{reply.finish_reason}'"
                samples.append(Failed(reason, "sampler"))
                continue
            ids = np.array(reply.token_ids, dtype=np.int32)
            logprobs = _chosen(reply.logprobs or [], ids)
            finish: Finish = "stop" if reply.finish_reason == "stop" else "length"
            runs = version_runs(reply.weight_versions) if self._in_flight else ()
            (first, _), *later = runs or [VersionRun(version, len(ids))]
            samples.append(Sample(ids, logprobs, first, finish, later_versions=tuple(later)))
        return marked_if_cut(request, samples, self._spec.config.max_model_len)

    async def score(self, policy: str, given: ScoreRequest, temperature: float = 1.0) -> LogProbs:
        if temperature != 1:  # vLLM returns log-probs of a prompt only at temperature 1
            places = range(len(given.response_ids))
            found = (self._score_token(policy, given, at, temperature) for at in places)
            return np.array(await asyncio.gather(*found), dtype=np.float32)
        params = self._params(max_tokens=1, temperature=0.0, prompt_logprobs=0)
        output, _ = await self._generate(policy, given, params)
        if output.prompt_logprobs is None:
            raise SamplerError("vLLM returned no log-probs of a prompt")
        return _chosen(output.prompt_logprobs[len(given.prompt_ids) :], given.response_ids)

    async def score_many(
        self, policy: str, given: Sequence[ScoreRequest], temperature: float = 1.0
    ) -> list[LogProbs]:
        return list(await asyncio.gather(*(self.score(policy, one, temperature) for one in given)))

    async def _score_token(
        self, policy: str, given: ScoreRequest, at: int, temperature: float
    ) -> float:
        """The log-prob of one token of a reply, as for sampling it next."""
        token = int(given.response_ids[at])
        params = self._params(
            max_tokens=1, temperature=temperature, logprobs=1, logprob_token_ids=[token]
        )
        before = given._replace(response_ids=given.response_ids[:at])
        output, _ = await self._generate(policy, before, params)
        (reply,) = output.outputs
        if not reply.logprobs:
            raise SamplerError("vLLM returned no log-prob of a token")
        logprob = float(reply.logprobs[0][token].logprob)
        return logprob if temperature else logprob - reply.logprobs[0][reply.token_ids[0]].logprob

    async def score_together(
        self, policies: Sequence[str], given: ScoreRequest
    ) -> dict[str, LogProbs]:
        # One request keeps vLLM busy while the others arrive, so it schedules those together.
        asked = (policies[0], *policies)
        _, *found = await asyncio.gather(*(self.score(policy, given) for policy in asked))
        return dict(zip(policies, found, strict=True))

    async def publish_adapter(self, policy: str, version: int, files: Files) -> None:
        """Take new weights of an adapter. Running requests finish on the version they started with;
        vLLM's caches distinguish versions by name."""
        with self._alive():
            new = await self._adapters.load(policy, version, files)
            self._adapters.switch(policy, new)
            self._versions[policy] = version
            await self._adapters.remove_unused()

    async def publish_weights(self, policy: str, version: int, files: Files) -> None:
        folder = write_files(self._folder, f"{policy}@{version}", files)
        shutil.copy(self._spec.model / "config.json", folder)
        async with self._updating(policy, version):
            await self._vllm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
            if self._spec.device == "cpu":
                await self._vllm.collective_rpc("repack")
            shutil.rmtree(folder)

    async def join_stream(self, link: Link) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        with self._alive():
            request = WeightTransferInitRequest({"link": asdict(link)})
            await self._vllm.init_weight_transfer_engine(request)

    async def receive_weights(self, policy: str, version: int, manifest: Manifest) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        async with self._updating(policy, version):
            await self._vllm.collective_rpc("abandon_update")
            await self._vllm.start_weight_update()
            request = WeightTransferUpdateRequest({"manifest": asdict(manifest)})
            await self._vllm.update_weights(request)
            await self._vllm.finish_weight_update()

    @asynccontextmanager
    async def _updating(self, policy: str, version: int) -> AsyncIterator[None]:
        """Replace the whole model; afterwards no request uses what old weights computed.

        In flight, vLLM pauses: it forgets the caches of the replies in progress, and afterwards
        computes those of their prompts and tokens again. So each token has the log-prob that the
        weights of its version give it after all tokens before. After a failure vLLM stays paused,
        so that no reply continues with mixed weights.
        """
        with self._alive():
            async with self._gate.update(f"the update to version {version} of '{policy}'"):
                if self._in_flight:
                    await self._vllm.pause_generation(mode="keep", clear_cache=True)
                yield
                self._versions[policy] = version
                if self._in_flight:
                    await self._label(version)
                    await self._vllm.resume_generation()
                else:
                    await self._reset_caches()

    async def _label(self, version: int) -> None:
        """Let vLLM mark the next tokens with a version."""
        await self._vllm.update_weight_version(str(version))

    async def drop(self, policy: str) -> None:
        if self._versions.pop(policy, None) is None:
            return
        self._adapters.switch(policy, None)
        with self._alive():
            await self._adapters.remove_unused()

    async def versions(self) -> dict[str, int]:
        return dict(self._versions)

    async def ping(self) -> None:
        with self._alive():
            await self._vllm.is_sleeping()  # answered by vLLM's own process, between two passes

    async def sleep(self) -> None:
        """Free the device's memory until `wake`. On CPU vLLM cannot sleep, so this does nothing."""
        if self._spec.sleeps and self._spec.device != "cpu":
            with self._alive():
                await self._vllm.sleep(level=1)

    async def wake(self) -> None:
        if self._spec.sleeps and self._spec.device != "cpu":
            with self._alive():
                await self._vllm.wake_up()

    def stop(self) -> None:
        self._vllm.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Raise EngineDiedError if vLLM's processes died, so that the caller can restart it."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except EngineDeadError as error:
            raise EngineDiedError(f"vLLM's processes died: {error}") from None

    async def _generate(
        self,
        policy: str,
        given: ScoreRequest,
        params: "SamplingParams",
        in_flight: bool = False,
    ) -> tuple["RequestOutput", int]:
        """What vLLM makes of a prompt, and the version of the policy at the beginning."""
        prompt = self._prompt(given)
        request_id = f"{policy}-{next(self._request_ids)}"
        last = None
        with self._alive():
            async with self._gate.request(in_flight):
                version = self._version(policy)
                async with self._adapters.using(policy) as lora:
                    outputs = self._vllm.generate(prompt, params, request_id, lora_request=lora)
                    async for output in outputs:
                        last = output
        if last is None:
            raise SamplerError("vLLM returned no output")
        if given.images and last.prompt_token_ids != np.concatenate(given[:2]).tolist():
            raise SamplerError("vLLM's ids of a multimodal prompt differ from the recorded ids")
        return last, version

    def _prompt(self, given: ScoreRequest) -> "TokensPrompt":
        """The prompt in vLLM's format. vLLM expands the image tokens by itself."""
        from vllm.inputs import TokensPrompt

        if self._image_processor is None:
            return TokensPrompt(prompt_token_ids=np.concatenate(given[:2]).tolist())
        ids = (
            self._image_processor.unexpanded(given.prompt_ids, given.images)
            + given.response_ids.tolist()
        )
        if not given.images:
            return TokensPrompt(prompt_token_ids=ids)
        return TokensPrompt(
            prompt_token_ids=ids,
            multi_modal_data={
                "image": [self._image_processor.resized(image) for image in given.images]
            },
            multi_modal_uuids={"image": [image.digest for image in given.images]},
        )

    def _params(self, **options: Any) -> "SamplingParams":
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        kind = RequestOutputKind.FINAL_ONLY
        return SamplingParams(output_kind=kind, detokenize=False, **options)

    def _version(self, policy: str) -> int:
        if policy not in self._versions:
            raise SamplerError(f"this engine does not serve '{policy}'")
        return self._versions[policy]

    async def _reset_caches(self) -> None:
        if not await self._vllm.reset_prefix_cache():
            raise SamplerError(
                "vLLM did not reset its prefix cache, so replies could mix old and new weights; "
                "were requests still running?"
            )
        if self._image_processor is not None:  # image embeddings of the old weights
            await self._vllm.reset_encoder_cache()


def version_runs(spans: Sequence["WeightVersionSpan"] | None) -> list[VersionRun]:
    """The versions of a reply's tokens, from vLLM's labels."""
    if spans is None:
        raise SamplerError("vLLM returned no weight versions of a reply")
    return [VersionRun(int(span.version), span.end - span.start) for span in spans]


def _guided(schema: str) -> "StructuredOutputsParams":
    """vLLM's form of a JSON schema; `{}` is any object."""
    from vllm.sampling_params import StructuredOutputsParams

    if schema == "{}":
        return StructuredOutputsParams(json_object=True)
    return StructuredOutputsParams(json=schema)


def _chosen(steps: Sequence[Any], ids: Ids) -> LogProbs:
    """Log-probs of the given ids among those that vLLM returns at each step."""
    pairs = zip(steps, ids.tolist(), strict=True)
    return np.array([step[chosen].logprob for step, chosen in pairs], dtype=np.float32)
