"""Players: the policy, sampler and renderer that reply for a role."""

import asyncio
from dataclasses import dataclass, replace

import numpy as np

from pettingllms.errors import ClusterError, ImageError, SamplerError, describe
from pettingllms.runtime.in_flight import ServiceClock, service_timeout
from pettingllms.types import (
    Credit,
    Failed,
    Ids,
    LogProbs,
    Message,
    Renderer,
    Sample,
    Sampler,
    SampleRequest,
    Turn,
    images_of,
)
from pettingllms.types.sampling import WHOLE, Truncation
from pettingllms.vision.images import check_image

MAX_ID = np.iinfo(np.int32).max
NO_IDS: Ids = np.empty(0, dtype=np.int32)
NO_IDS.flags.writeable = False


@dataclass(frozen=True, slots=True)
class Player:
    """A policy with its sampler and renderer."""

    policy: str
    sampler: Sampler
    renderer: Renderer
    trained: bool = True
    """Whether its policy is trained now. Only trained players sample siblings in tree rollouts."""
    rests: bool = False
    """Whether its policy is trained in other steps, with the same sampling parameters."""
    reads_state: bool = False
    """Whether it is a scripted player: it reads the state, not the prompt, and its ids are
    bytes."""
    in_bytes: bool = False
    """Whether its ids are the bytes of a text. Token limits do not apply to them."""
    temperature: float = 1.0
    """Sampling temperature."""
    truncation: Truncation = WHOLE
    """Tokens that may be sampled; all of them while its policy is trained."""
    centralized: bool = False
    """Whether a centralized critic values its turns."""

    @property
    def uses_policy_sampling(self) -> bool:
        """Whether sampling parameters come from its policy and not from a workflow's request."""
        return self.trained or self.rests


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request for turns of one role: its observation and the sampling parameters."""

    role: str
    messages: tuple[Message, ...]
    state: object
    task_id: str
    seed: int
    num_samples: int
    max_tokens: int
    seconds: float
    """Timeout of the sampler, without the time in its queue."""
    centralized: tuple[Message, ...] | None = None
    """Observation of a centralized critic; None if there is no such critic."""
    prompt_ids: Ids | None = None
    """Token ids of the prompt; None to render the messages."""
    temperature: float | None = None
    """Overrides the temperature of the player."""
    guide: str | None = None
    """JSON schema that the reply must fit."""
    clock: ServiceClock | None = None
    """Deadline of the workflow that sent the request; paused while the request is queued."""


async def sample_turns(player: Player, request: TurnRequest) -> list[Turn]:
    """Sample `num_samples` replies from the player's policy, one turn each.

    This boundary records failures: errors in sampling or rendering become the failure of these
    turns and affect nothing else. An image that cannot be decoded is the environment's failure.
    """
    prompt_ids = NO_IDS
    try:
        images = images_of(request.messages)
        for image in images:
            check_image(image)
        known = request.prompt_ids
        prompt_ids = frozen(player.renderer.render(request.messages) if known is None else known)
        sample_request = SampleRequest(
            policy=player.policy,
            role=request.role,
            prompt_ids=prompt_ids,
            num_samples=request.num_samples,
            max_tokens=request.max_tokens,
            seed=request.seed,
            task_id=request.task_id,
            temperature=player.temperature if request.temperature is None else request.temperature,
            truncation=player.truncation,
            guide=request.guide,
            state=request.state if player.reads_state else None,
            images=images,
        )
        results = await _sample(player.sampler, sample_request, request)
        turns = [_turn(player, request, prompt_ids, result) for result in results]
        if request.centralized is None:
            return turns
        ids = frozen(player.renderer.render(request.centralized))
        images = images_of(request.centralized)
        return [replace(t, centralized_ids=ids, centralized_images=images) for t in turns]
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        failure = Failed(f"the sampler was cancelled: {describe(error)}", "sampler")
    except ImageError as error:
        failure = Failed(describe(error), "environment")
    except ClusterError:
        raise  # no engine is left
    except Exception as error:  # noqa: BLE001 - see the docstring
        failure = Failed(describe(error), "sampler")
    return [_failed_turn(player, request, prompt_ids, failure) for _ in range(request.num_samples)]


async def _sample(
    sampler: Sampler, sample_request: SampleRequest, request: TurnRequest
) -> list[Sample | Failed]:
    seconds = request.seconds
    try:
        async with service_timeout(seconds, request.clock) as deadline:
            results = list(await sampler.sample(sample_request))
    except TimeoutError:
        if not deadline.expired():
            raise
        raise SamplerError(f"no reply within {seconds:g} s (rollout.sampler_timeout)") from None
    if len(results) != request.num_samples:
        raise SamplerError(
            f"the sampler returned {len(results)} replies; expected {request.num_samples}"
        )
    return results


def _turn(player: Player, request: TurnRequest, prompt_ids: Ids, result: Sample | Failed) -> Turn:
    if isinstance(result, Failed):
        return _failed_turn(player, request, prompt_ids, result)
    ids = frozen(result.ids)
    if len(ids) > request.max_tokens and not (player.in_bytes or player.reads_state):
        raise SamplerError(
            f"the sampler returned {len(ids)} tokens; expected at most {request.max_tokens}"
        )
    text = player.renderer.decode(ids)
    return Turn(
        role=request.role,
        policy=player.policy,
        messages=request.messages,
        prompt_ids=prompt_ids,
        response_ids=ids,
        logprobs=None if result.logprobs is None else _checked_logprobs(result.logprobs, len(ids)),
        text=text,
        policy_version=result.policy_version,
        finish=result.finish,
        ends=player.renderer.ends(ids, text),
        usage=result.usage,
        guided=request.guide is not None,
        limit=result.limit,
        later_versions=result.later_versions,
    )


def _failed_turn(player: Player, request: TurnRequest, prompt_ids: Ids, failure: Failed) -> Turn:
    return Turn(
        role=request.role,
        policy=player.policy,
        messages=request.messages,
        prompt_ids=prompt_ids,
        response_ids=NO_IDS,
        logprobs=None,
        text="",
        policy_version=None,
        credit=Credit(failure=failure),
    )


def frozen(ids: Ids) -> Ids:
    """A read-only copy of token ids."""
    given = np.asarray(ids)
    if given.dtype != np.int32 and given.size and not 0 <= given.min() <= given.max() <= MAX_ID:
        raise SamplerError(f"token ids must be in [0, {MAX_ID}]")
    copy = np.array(given, dtype=np.int32)
    copy.flags.writeable = False
    return copy


def _checked_logprobs(logprobs: LogProbs, count: int) -> LogProbs:
    copy = np.array(logprobs, dtype=np.float32)
    copy.flags.writeable = False
    if copy.shape != (count,) or not np.isfinite(copy).all():
        raise SamplerError(
            f"log-probs have shape {copy.shape}, expected ({count},), or are not finite"
        )
    return copy
