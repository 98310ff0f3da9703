"""OpenAI's Completions API: a bare prompt, as text or as token ids."""

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pettingllms.gateway.calls import Answered, Call, CallError, Reply
from pettingllms.gateway.dialects.base import (
    Body,
    Dialect,
    Listed,
    NumTokens,
    Seed,
    Stops,
    Temperature,
    check_sampling,
    event,
    num_replies,
    openai_error,
    pieces,
)
from pettingllms.gateway.dialects.openai_chat import StreamOptions, stops, usage

Id = Annotated[int, Field(ge=0, lt=2**31)]


class CompletionRequest(Body):
    """A request for completions of a prompt."""

    model: str = ""
    prompt: str | Listed[Id]
    max_tokens: NumTokens | None = 16
    temperature: Temperature | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, Any] | None = None
    best_of: int | None = None
    suffix: str | None = None
    echo: bool | None = None
    seed: Seed | None = None
    stop: str | Stops | None = None
    n: int | None = None
    logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


def read(body: CompletionRequest, headers: Mapping[str, str]) -> Call:
    """Convert a request into a call."""
    check_sampling(body)
    if body.logprobs:
        raise CallError(
            400, "only log-probs of sampled tokens are available; set logprobs to 0", "logprobs"
        )
    if not body.prompt:
        raise CallError(400, "the prompt is empty", "prompt")
    is_text = isinstance(body.prompt, str)
    return Call(
        model=body.model,
        text=str(body.prompt) if is_text else "",
        prompt_ids=None if is_text else np.array(body.prompt, dtype=np.int32),
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        seed=body.seed,
        stop=stops(body.stop),
        num_replies=num_replies(body.n),
        headers=headers,
    )


def write(answered: Answered, body: CompletionRequest) -> dict[str, Any]:
    """The response to a request."""
    choices = [
        _choice(at, reply.text, reply.finish, _logprobs(reply, body))
        for at, reply in enumerate(answered.replies)
    ]
    return {**_head(answered, body), "choices": choices, "usage": usage(answered)}


def stream(answered: Answered, body: CompletionRequest) -> Iterator[str]:
    """The response as server-sent events."""
    head = _head(answered, body)
    for at, reply in enumerate(answered.replies):
        for text in pieces(reply.text):
            yield event({**head, "choices": [_choice(at, text, None, None)]})
        last = _choice(at, "", reply.finish, _logprobs(reply, body))
        yield event({**head, "choices": [last]})
    if body.stream_options is not None and body.stream_options.include_usage:
        yield event({**head, "choices": [], "usage": usage(answered)})
    yield "data: [DONE]\n\n"


def _choice(at: int, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
    return {"index": at, "text": text, "logprobs": logprobs, "finish_reason": finish}


def _head(answered: Answered, body: CompletionRequest) -> dict[str, Any]:
    name = answered.replies[0].id.replace("chatcmpl", "cmpl")
    model, created = body.model or answered.role, int(time.time())
    return {"id": name, "object": "text_completion", "created": created, "model": model}


def _logprobs(reply: Reply, body: CompletionRequest) -> dict[str, Any] | None:
    if body.logprobs is None or reply.turn.logprobs is None:
        return None
    return {
        "tokens": [f"token_id:{token}" for token in reply.turn.response_ids.tolist()],
        "token_logprobs": reply.turn.logprobs.tolist(),
        "top_logprobs": None,
        "text_offset": [],
    }


COMPLETIONS = Dialect("/completions", CompletionRequest, read, write, stream, openai_error)
