"""Who answers for a role: a policy, with the sampler and the renderer that speak for it."""

import asyncio
from dataclasses import dataclass

import numpy as np

from pettingllms.types import (
    Failed,
    Ids,
    Message,
    Renderer,
    Sample,
    Sampler,
    SampleRequest,
    Turn,
)

NO_IDS: Ids = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Seat:
    """One policy at the table."""

    policy: str
    sampler: Sampler
    renderer: Renderer
    trained: bool = True
    """Whether its turns are compared with siblings; a seat that does not learn answers once."""
    sees_state: bool = False
    """Whether it is a script that reads the state instead of the prompt."""


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


async def ask(seat: Seat, question: Question) -> list[Turn]:
    """The replies of the seat's policy, one turn for each; a failed one carries its reason."""
    prompt_ids = seat.renderer.render(question.messages)
    prompt_ids.flags.writeable = False
    request = SampleRequest(
        policy=seat.policy,
        role=question.role,
        prompt_ids=prompt_ids,
        num_samples=question.num_samples,
        max_tokens=question.max_tokens,
        seed=question.seed,
        task_id=question.task_id,
        state=question.state if seat.sees_state else None,
    )
    results = await _sample(seat.sampler, request, question.seconds)
    return [_turn(seat, question, prompt_ids, result) for result in results]


async def _sample(
    sampler: Sampler, request: SampleRequest, seconds: float
) -> list[Sample | Failed]:
    """Ask the sampler; whatever goes wrong there becomes a failure of these replies alone."""
    try:
        async with asyncio.timeout(seconds):
            results = list(await sampler.sample(request))
    except TimeoutError:
        reason = f"no reply within {seconds:g} s (rollout.sampler_seconds)"
    except Exception as error:  # noqa: BLE001 - the one boundary that records a sampler's failure
        reason = f"{type(error).__name__}: {error}"
    else:
        if len(results) == request.num_samples:
            return results
        reason = f"the sampler gave {len(results)} replies, {request.num_samples} were asked for"
    return [Failed(reason, "sampler")] * request.num_samples


def _turn(seat: Seat, question: Question, prompt_ids: Ids, result: Sample | Failed) -> Turn:
    if isinstance(result, Failed):
        return Turn(
            role=question.role,
            policy=seat.policy,
            messages=question.messages,
            prompt_ids=prompt_ids,
            response_ids=NO_IDS,
            logprobs=None,
            text="",
            policy_version=0,
            failure=result,
        )
    result.ids.flags.writeable = False
    return Turn(
        role=question.role,
        policy=seat.policy,
        messages=question.messages,
        prompt_ids=prompt_ids,
        response_ids=result.ids,
        logprobs=result.logprobs,
        text=seat.renderer.decode(result.ids),
        policy_version=result.policy_version,
        finish=result.finish,
    )
