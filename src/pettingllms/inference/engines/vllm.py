"""The vLLM engine: a model with its LoRA adapters, each under a versioned name."""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pettingllms.errors import EngineDiedError, SamplerError
from pettingllms.inference.adapter_versions import AdapterVersions, write_files
from pettingllms.inference.chat import stop_ids
from pettingllms.inference.engines.base import (
    UNBOUND,
    UNGUIDED,
    Capabilities,
    EngineSpec,
    InferenceEngine,
    image_failure,
    marked_if_cut,
    too_long,
)
from pettingllms.inference.engines.vllm_worker import EXTENSION, FOLDER, OWNER
from pettingllms.policies.files import Files
from pettingllms.rollouts.player import NO_IDS
from pettingllms.types import Failed, Ids, LogProbs, Sample, SampleRequest, ScoreRequest
from pettingllms.types.turns import Finish
from pettingllms.vision.families import supports_images
from pettingllms.vision.processor import load_image_processor

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import StructuredOutputsParams

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


class VllmEngine(InferenceEngine):
    """A vLLM AsyncLLM with multi-LoRA and prefix cache."""

    capabilities = Capabilities(
        lora=True,
        logprobs=True,
        images=True,
        pause=True,
        weight_transfer=True,
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
        self._folder = Path(tempfile.mkdtemp(prefix="pettingllms-engine-"))

    async def start(self) -> None:
        os.environ.update(vllm_environment(self._spec))
        os.environ[FOLDER] = str(self._folder)
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        args = AsyncEngineArgs(**vllm_options(self._spec), worker_extension_cls=self.extension)
        self._stop_ids = stop_ids(self._spec.model)
        self._image_processor = load_image_processor(self._spec.model)
        self._vllm = AsyncLLM.from_engine_args(args)
        self._adapters = AdapterVersions(self._vllm, self._folder)

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        room = self._spec.config.max_model_len - len(request.prompt_ids)
        if room < 1:
            return [too_long(request, self._spec.config.max_model_len)] * request.num_samples
        version = self._version(request.policy)
        if request.guide is not None and not self._spec.config.guided:
            return [UNGUIDED] * request.num_samples
        if (failure := image_failure(self._image_processor, request)) is not None:
            return [failure] * request.num_samples
        params = self._params(
            n=request.num_samples,
            max_tokens=min(request.max_tokens, room),
            temperature=request.temperature,
            seed=request.seed,
            logprobs=0,
            stop_token_ids=self._stop_ids,
            structured_outputs=None if request.guide is None else _guided(request.guide),
        )
        prompt = ScoreRequest(request.prompt_ids, NO_IDS, request.images)
        output = await self._generate(request.policy, prompt, params)
        samples: list[Sample | Failed] = []
        for reply in sorted(output.outputs, key=lambda reply: reply.index):
            if reply.finish_reason not in ("stop", "length"):
                reason = f"vLLM finished the reply with '{reply.finish_reason}'"
                samples.append(Failed(reason, "sampler"))
                continue
            ids = np.array(reply.token_ids, dtype=np.int32)
            logprobs = _chosen(reply.logprobs or [], ids)
            finish: Finish = "stop" if reply.finish_reason == "stop" else "length"
            samples.append(Sample(ids, logprobs, version, finish))
        return marked_if_cut(request, samples, self._spec.config.max_model_len)

    async def score(self, policy: str, given: ScoreRequest, temperature: float = 1.0) -> LogProbs:
        if temperature != 1:  # vLLM returns log-probs of a prompt only at temperature 1
            places = range(len(given.response_ids))
            found = (self._score_token(policy, given, at, temperature) for at in places)
            return np.array(await asyncio.gather(*found), dtype=np.float32)
        params = self._params(max_tokens=1, temperature=0.0, prompt_logprobs=0)
        output = await self._generate(policy, given, params)
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
        (reply,) = (await self._generate(policy, before, params)).outputs
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
        with self._alive():
            await self._vllm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
            if self._spec.device == "cpu":
                await self._vllm.collective_rpc("repack")
            self._versions[policy] = version
            shutil.rmtree(folder)
            await self._reset_caches()

    async def drop(self, policy: str) -> None:
        if self._versions.pop(policy, None) is None:
            return
        self._adapters.switch(policy, None)
        with self._alive():
            await self._adapters.remove_unused()

    async def versions(self) -> dict[str, int]:
        return dict(self._versions)

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
        self, policy: str, given: ScoreRequest, params: "SamplingParams"
    ) -> "RequestOutput":
        prompt = self._prompt(given)
        request_id = f"{policy}-{next(self._request_ids)}"
        last = None
        with self._alive():
            async with self._adapters.using(policy) as lora:
                outputs = self._vllm.generate(prompt, params, request_id, lora_request=lora)
                async for output in outputs:
                    last = output
        if last is None:
            raise SamplerError("vLLM returned no output")
        if given.images and last.prompt_token_ids != np.concatenate(given[:2]).tolist():
            raise SamplerError("vLLM's ids of a multimodal prompt differ from the recorded ids")
        return last

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


def _guided(schema: str) -> "StructuredOutputsParams":
    """vLLM's form of a JSON schema; `{}` is any object."""
    from vllm.sampling_params import StructuredOutputsParams

    if schema == "{}":
        return StructuredOutputsParams(json_object=True)
    return StructuredOutputsParams(json=schema)


def vllm_environment(spec: EngineSpec) -> dict[str, str]:
    """Environment variables that must be set before vLLM is imported."""
    variables = {
        OWNER: str(os.getpid()),
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if spec.loopback:
        variables |= {"VLLM_HOST_IP": "127.0.0.1"}
        variables |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    if spec.device != "cpu":
        return variables
    if spec.cores == UNBOUND:
        variables["OMP_NUM_THREADS"] = str(spec.num_threads)
    return variables | {
        "VLLM_CPU_KVCACHE_SPACE": str(spec.config.cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": spec.cores,
        "OMP_WAIT_POLICY": "passive",
        "TORCHDYNAMO_DISABLE": "1",  # else the first request waits for a C++ compiler
    }


def vllm_options(spec: EngineSpec) -> dict[str, Any]:
    """vLLM's arguments, without our worker extension."""
    config = spec.config
    options: dict[str, Any] = {
        "model": str(spec.model),
        "dtype": spec.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "tensor_parallel_size": config.tensor_parallel,
        "enforce_eager": spec.device == "cpu",
        "skip_tokenizer_init": not config.guided,
        "logprobs_mode": "processed_logprobs",
        "enable_sleep_mode": spec.sleeps and spec.device != "cpu",
        "disable_log_stats": True,
        "seed": 0,
    }
    if supports_images(spec.model):
        options |= {"skip_tokenizer_init": False, "limit_mm_per_prompt": {"video": 0}}
    if spec.num_adapters:
        options |= {
            "enable_lora": True,
            "lora_dtype": "auto",  # the learner's float32 adapters are cast to `dtype` at load
            "max_loras": spec.num_adapters + spec.num_opponents,
            "max_cpu_loras": 2 * spec.num_adapters + spec.num_snapshots,
            "max_lora_rank": next(r for r in LORA_RANKS if r >= spec.max_rank),
            "enable_tower_connector_lora": spec.adapts_vision,
        }
    if spec.device == "cpu":
        # Chunked prefill crashes vLLM's CPU worker if the request has a seed.
        options["enable_chunked_prefill"] = False
    else:
        options["gpu_memory_utilization"] = config.gpu_memory_utilization
    return options


def _chosen(steps: Sequence[Any], ids: Ids) -> LogProbs:
    """Log-probs of the given ids among those that vLLM returns at each step."""
    pairs = zip(steps, ids.tolist(), strict=True)
    return np.array([step[chosen].logprob for step, chosen in pairs], dtype=np.float32)
