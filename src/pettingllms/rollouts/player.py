"""Who answers for a role: a policy, with the sampler and the renderer that speak for it."""

import asyncio
from dataclasses import dataclass, replace

import numpy as np

from pettingllms.errors import ClusterError, ImageError, SamplerError, describe
from pettingllms.runtime.in_flight import ServiceClock, served_within
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
from pettingllms.vision.images import check_image

MAX_ID = np.iinfo(np.int32).max
NO_IDS: Ids = np.empty(0, dtype=np.int32)
NO_IDS.flags.writeable = False


@dataclass(frozen=True, slots=True)
class Player:
    """One policy at the table."""

    policy: str
    sampler: Sampler
    renderer: Renderer
    trained: bool = True
    """Whether its turns are compared with siblings; a player that does not learn answers once."""
    rests: bool = False
    """Whether it learns in other steps of the run, and plays as it does then."""
    reads_state: bool = False
    """Whether it is a script that reads the state instead of the prompt. Its ids are bytes too."""
    in_bytes: bool = False
    """Whether its ids are the bytes of a text, which a limit of tokens does not bound."""
    temperature: float = 1.0
    """Of sampling."""
    centralized: bool = False
    """Whether a critic reads what the whole team sees when this player is asked."""

    @property
    def has_own_settings(self) -> bool:
        """Whether it is sampled as its policy says, whatever a program asks for."""
        return self.trained or self.rests


@dataclass(frozen=True, slots=True)
class Question:
    """What a role is asked: its messages, and all that decides the answer."""

    role: str
    messages: tuple[Message, ...]
    state: object
    task_id: str
    seed: int
    num_samples: int
    max_tokens: int
    seconds: float
    """How long the sampler may take, its queue not counted."""
    centralized: tuple[Message, ...] | None = None
    """What a critic of the whole team is shown now."""
    prompt_ids: Ids | None = None
    """The prompt, where its ids are known already; else the messages are rendered."""
    temperature: float | None = None
    """In place of the player's own."""
    guide: str | None = None
    """JSON schema that the reply must fit."""
    clock: ServiceClock | None = None
    """Of the program that asks: it stands still while the question waits for its turn."""


async def ask(player: Player, question: Question) -> list[Turn]:
    """The replies of the player's policy, one turn for each.

    This is the boundary that records a sampler's failures: whatever goes wrong in sampling or
    rendering becomes the reason on these turns, and touches nothing else. So does an image that
    nobody can decode, which is the environment's.
    """
    prompt_ids = NO_IDS
    try:
        images = images_of(question.messages)
        for image in images:
            check_image(image)
        known = question.prompt_ids
        prompt_ids = frozen(player.renderer.render(question.messages) if known is None else known)
        request = SampleRequest(
            policy=player.policy,
            role=question.role,
            prompt_ids=prompt_ids,
            num_samples=question.num_samples,
            max_tokens=question.max_tokens,
            seed=question.seed,
            task_id=question.task_id,
            temperature=player.temperature
            if question.temperature is None
            else question.temperature,
            guide=question.guide,
            state=question.state if player.reads_state else None,
            images=images,
        )
        results = await _sample(player.sampler, request, question)
        turns = [_turn(player, question, prompt_ids, result) for result in results]
        if question.centralized is None:
            return turns
        ids = frozen(player.renderer.render(question.centralized))
        images = images_of(question.centralized)
        return [replace(t, centralized_ids=ids, centralized_images=images) for t in turns]
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        failure = Failed(f"the sampler was cancelled: {describe(error)}", "sampler")
    except ImageError as error:
        failure = Failed(describe(error), "environment")
    except ClusterError:
        raise  # no engine will answer any more
    except Exception as error:  # noqa: BLE001 - see the docstring
        failure = Failed(describe(error), "sampler")
    return [
        _failed_turn(player, question, prompt_ids, failure) for _ in range(question.num_samples)
    ]


async def _sample(
    sampler: Sampler, request: SampleRequest, question: Question
) -> list[Sample | Failed]:
    seconds = question.seconds
    try:
        async with served_within(seconds, question.clock) as deadline:
            results = list(await sampler.sample(request))
    except TimeoutError:
        if not deadline.expired():
            raise
        raise SamplerError(f"no reply within {seconds:g} s (rollout.sampler_timeout)") from None
    if len(results) != request.num_samples:
        raise SamplerError(f"{len(results)} replies came, {request.num_samples} were asked for")
    return results


def _turn(player: Player, question: Question, prompt_ids: Ids, result: Sample | Failed) -> Turn:
    if isinstance(result, Failed):
        return _failed_turn(player, question, prompt_ids, result)
    ids = frozen(result.ids)
    if len(ids) > question.max_tokens and not (player.in_bytes or player.reads_state):
        raise SamplerError(f"{len(ids)} tokens came, at most {question.max_tokens} were asked for")
    text = player.renderer.decode(ids)
    return Turn(
        role=question.role,
        policy=player.policy,
        messages=question.messages,
        prompt_ids=prompt_ids,
        response_ids=ids,
        logprobs=None if result.logprobs is None else _checked(result.logprobs, len(ids)),
        text=text,
        policy_version=result.policy_version,
        finish=result.finish,
        ends=player.renderer.ends(ids, text),
        usage=result.usage,
        guided=question.guide is not None,
        limit=result.limit,
    )


def _failed_turn(player: Player, question: Question, prompt_ids: Ids, failure: Failed) -> Turn:
    return Turn(
        role=question.role,
        policy=player.policy,
        messages=question.messages,
        prompt_ids=prompt_ids,
        response_ids=NO_IDS,
        logprobs=None,
        text="",
        policy_version=None,
        credit=Credit(failure=failure),
    )


def frozen(ids: Ids) -> Ids:
    """A copy of ids that nobody can change: what was sampled stays what was sampled."""
    given = np.asarray(ids)
    if given.dtype != np.int32 and given.size and not 0 <= given.min() <= given.max() <= MAX_ID:
        raise SamplerError(f"ids must be from 0 to {MAX_ID}")
    copy = np.array(given, dtype=np.int32)
    copy.flags.writeable = False
    return copy


def _checked(logprobs: LogProbs, count: int) -> LogProbs:
    copy = np.array(logprobs, dtype=np.float32)
    copy.flags.writeable = False
    if copy.shape != (count,) or not np.isfinite(copy).all():
        raise SamplerError(f"the log-probs of {count} tokens are {copy.shape} or not finite")
    return copy
