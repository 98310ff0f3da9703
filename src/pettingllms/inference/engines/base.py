"""The inference engine contract: declared capabilities, requests in, replies with log-probs out.

An engine class also declares its capabilities, which a configuration is checked against. So its
module imports the engine itself only inside functions.
"""
# ruff: noqa: ARG002 - methods take what some engine needs

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pettingllms.config import InferenceConfig
from pettingllms.config.engines import Dtype, resolve_dtype
from pettingllms.errors import ImageError, SamplerError
from pettingllms.policies.files import Files
from pettingllms.runtime.resources import CoreShare
from pettingllms.transfer.link import Link, Manifest
from pettingllms.types import Failed, LogProbs, PromptTooLong, Sample, SampleRequest, ScoreRequest
from pettingllms.vision.processor import ImageProcessor

UNGUIDED = Failed(
    "this engine cannot constrain a reply to a schema; set inference.guided = true, with vLLM",
    "limit",
)
TEXT_ONLY = Failed("the prompt has an image, and the model is text-only", "sampler")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. A run that needs more is rejected before anything starts."""

    lora: bool = False
    """Serves several LoRA adapters over one model: `publish_adapter`."""
    logprobs: bool = False
    """Returns the log-probs of sampled tokens, which training needs, and scores fixed replies."""
    images: bool = False
    """Serves VLMs."""
    pause: bool = False
    """Frees its memory between `sleep` and `wake`, for cluster.placement = "colocated"."""
    weight_transfer: bool = False
    """Takes new weights of the whole model while it runs: `publish_weights`."""
    stream: bool = False
    """Takes them from the learner's memory through a process group: `join_stream` and
    `receive_weights`. Others take them from files."""
    in_flight: bool = False
    """Replaces the whole model's weights while replies are sampled (`EngineSpec.in_flight`)."""
    model_copies: bool = False
    """Serves frozen copies of the whole model beside it: `publish_copy`."""
    guided: bool = False
    """Constrains replies to a JSON schema."""
    gpu: bool = False
    """Runs on GPUs."""
    kv_cache: bool = False
    """Reserves inference.cache_gib of memory on CPU."""
    lockstep: bool = False
    """Answers a batch of requests as a whole: requests are queued and sent to `sample_many`."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine is started with."""

    model: Path
    config: InferenceConfig
    policies: tuple[str, ...]
    max_rank: int = 0
    """Largest rank of an adapter; 0: there are none."""
    num_adapters: int = 0
    num_versions: int = 1
    """Versions of an adapter that requests use at once; 2: new weights arrive while they run."""
    adapts_vision: bool = False
    """Whether some adapter changes the vision encoder."""
    num_snapshots: int = 0
    """Frozen adapters that are kept ready in addition."""
    num_opponents: int = 0
    """How many of them answer in one batch."""
    device: str = "cpu"
    core_share: CoreShare | None = None
    """CPU: the engine's part of its machine's cores; None: one thread, bound as vLLM decides."""
    loopback: bool = True
    """Whether the whole run is on this machine."""
    in_flight: bool = False
    """Whether replies in progress continue with new weights of the whole model; otherwise new
    weights wait until all replies have ended."""
    sleeps: bool = False
    """GPU: whether the engine frees its memory while learners work."""

    @property
    def cores(self) -> str:
        """CPU: cores of the engine's threads on this machine, as in "0,1", or `UNBOUND`."""
        return "auto" if self.core_share is None else self.core_share.cores

    @property
    def num_threads(self) -> int:
        """CPU: threads of an engine that is bound to no cores, or is in plain PyTorch."""
        return 1 if self.core_share is None else self.core_share.threads

    @property
    def dtype(self) -> Dtype:
        """Type of the weights on this device."""
        return resolve_dtype(self.config.dtype, self.device)


class InferenceEngine(ABC):
    """Samples and scores replies of the policies that share one model, in a separate process.

    An engine is one file with one class and a line in the registry, or a user's file:
    `inference.engine = "my_engine.py:MyEngine"`. The cluster creates it from an `EngineSpec`,
    awaits `start`, publishes weights under a version, and calls the other methods concurrently. A
    reply must depend only on the request and the published weights: if an engine dies, the cluster
    starts another one and sends lost requests again.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    packages: ClassVar[tuple[str, ...]] = ()
    """Python packages that must be installed."""
    image_packages: ClassVar[tuple[str, ...]] = ()
    """Further ones for VLMs."""
    process_gib: ClassVar[float] = 1.0
    """CPU: memory of an engine without weights and cache, for estimates."""

    @abstractmethod
    def __init__(self, spec: EngineSpec) -> None: ...

    @abstractmethod
    async def start(self) -> None:
        """Load the model, in the event loop that will use the engine."""

    @abstractmethod
    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        """Replies with the log-probs of the sampled tokens, temperature included."""

    async def sample_many(
        self, requests: Sequence[SampleRequest]
    ) -> list[Sequence[Sample | Failed]]:
        """The replies to each request, for engines that answer in lockstep."""
        return [await self.sample(request) for request in requests]

    @abstractmethod
    async def score(self, policy: str, given: ScoreRequest, temperature: float = 1.0) -> LogProbs:
        """Log-probs of a fixed reply at a temperature; at 0 relative to the likeliest token."""

    async def score_many(
        self, policy: str, given: Sequence[ScoreRequest], temperature: float = 1.0
    ) -> list[LogProbs]:
        """Log-probs of many fixed replies."""
        return [await self.score(policy, one, temperature) for one in given]

    async def score_together(
        self, policies: Sequence[str], given: ScoreRequest
    ) -> dict[str, LogProbs]:
        """Log-probs of a fixed reply by several policies, in one batch if the engine mixes them."""
        return {policy: await self.score(policy, given) for policy in policies}

    async def ping(self) -> None:  # noqa: B027 - the event loop that answers is the sign of life
        """Answer once the engine gets round to it. One that does not for `inference.engine_timeout`
        seconds is replaced."""

    @abstractmethod
    async def versions(self) -> dict[str, int]:
        """The published version of each policy."""

    async def publish_adapter(self, policy: str, version: int, files: Files) -> None:
        """Take new weights of a LoRA adapter."""
        raise self._unable("serve LoRA adapters")

    async def publish_weights(self, policy: str, version: int, files: Files) -> None:
        """Take new weights of the whole model. A file may be given by its path: use `read_content`
        or `write_content` of `pettingllms.policies.files`."""
        raise self._unable("take new weights of a whole model")

    async def join_stream(self, link: Link) -> None:
        """Join a learner's process group, which replaces an earlier one. Returns once all members
        have met."""
        raise self._unable("receive a stream of weights")

    async def receive_weights(self, policy: str, version: int, manifest: Manifest) -> None:
        """Take new weights of the whole model from the process group. Requests that arrive
        meanwhile must wait. If this fails, they must fail with EngineDiedError until new weights
        were taken completely."""
        raise self._unable("receive a stream of weights")

    async def publish_copy(self, policy: str, version: int, files: Files) -> None:
        """Take the weights of a frozen copy of the whole model, served in addition to it. Files are
        as in `publish_weights`."""
        raise self._unable("serve copies of a whole model")

    async def drop(self, policy: str) -> None:
        """Remove a frozen policy; an engine that was started again may not know it."""
        raise self._unable("drop policies")

    async def sleep(self) -> None:  # noqa: B027 - engines without `pause` keep their memory
        """Free the device's memory until `wake`."""

    async def wake(self) -> None:  # noqa: B027 - as above
        """Be ready again."""

    def stop(self) -> None:  # noqa: B027 - an engine may leave nothing behind
        """End the engine's processes and remove its files."""

    def _unable(self, what: str) -> SamplerError:
        return SamplerError(f"the engine {type(self).__name__} cannot {what}")


def too_long(request: SampleRequest, limit: int) -> Failed:
    """The result of a request whose prompt fills the model's context."""
    return PromptTooLong(
        f"the prompt has {len(request.prompt_ids)} tokens, which leaves no room for a reply "
        f"(inference.max_model_len = {limit})",
        "limit",
    )


def marked_if_cut(
    request: SampleRequest, samples: Sequence[Sample | Failed], limit: int
) -> Sequence[Sample | Failed]:
    """The samples; those that the model's context length cut short carry the limit."""
    room = limit - len(request.prompt_ids)
    if request.max_tokens <= room:
        return samples
    reason = (
        f"the reply was cut after {room} of {request.max_tokens} tokens: its prompt has "
        f"{len(request.prompt_ids)} (inference.max_model_len = {limit})"
    )
    return [
        replace(s, limit=reason) if isinstance(s, Sample) and s.finish == "length" else s
        for s in samples
    ]


def image_failure(image_processor: ImageProcessor | None, request: SampleRequest) -> Failed | None:
    """The failure of a request whose images the model cannot read; None if it can."""
    if image_processor is None:
        return TEXT_ONLY if request.images else None
    try:
        image_processor.image_positions(request.prompt_ids, request.images)
    except ImageError as error:
        return Failed(str(error), "sampler")
    return None
