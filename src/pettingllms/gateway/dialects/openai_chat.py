"""OpenAI's Chat Completions API."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from pettingllms.gateway.calls import (
    Answered,
    Call,
    CalledTool,
    CallError,
    ChatMessage,
    Reply,
    ToolSpec,
)
from pettingllms.gateway.contents import Content, read_content
from pettingllms.gateway.dialects.base import (
    Body,
    Dialect,
    JsonSchema,
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
    schema_text,
)


class Function(Body):
    """The function of a tool call."""

    name: str
    arguments: str


class ToolCall(Body):
    """A tool call in an earlier reply."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class ChatMessageBody(Body):
    """A message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    tool_calls: Listed[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class FunctionSpec(Body):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Body):
    """A tool that the model may call."""

    type: Literal["function"] = "function"
    function: FunctionSpec


class NamedTool(Body):
    """The tool that the model must call."""

    type: Literal["function"] = "function"
    function: dict[str, Any]


class ResponseFormat(Body):
    """Format of the reply."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(Body):
    """Options of a streamed response."""

    include_usage: bool | None = None


class ChatRequest(Body):
    """A request for replies to a chat."""

    model: str = ""
    messages: Listed[ChatMessageBody] = Field(min_length=1)
    tools: Listed[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    functions: list[Any] | None = None
    response_format: ResponseFormat | None = None
    max_tokens: NumTokens | None = None
    max_completion_tokens: NumTokens | None = None
    temperature: Temperature | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, Any] | None = None
    seed: Seed | None = None
    stop: str | Stops | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


def read(body: ChatRequest, headers: Mapping[str, str]) -> Call:
    """Convert a request into a call."""
    check_sampling(body)
    check_top_logprobs(body.top_logprobs)
    if body.functions:
        raise CallError(400, "'functions' is not supported; send 'tools'", "functions")
    none = body.tool_choice == "none"
    return Call(
        model=body.model,
        messages=tuple(_message(message) for message in body.messages),
        tools=() if none else _tools(body.tools),
        must_call=_must_call(body.tool_choice),
        schema=_schema(body.response_format),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        seed=body.seed,
        stop=stops(body.stop),
        num_replies=num_replies(body.n),
        headers=headers,
    )


def check_top_logprobs(number: int | None) -> None:
    """Reject requests for log-probs of tokens that were not sampled."""
    if number:
        raise CallError(
            400,
            "only log-probs of sampled tokens are available; leave out top_logprobs",
            "top_logprobs",
        )


def _tools(tools: list[Tool] | None) -> tuple[ToolSpec, ...]:
    """The tools of a request."""
    functions = [tool.function for tool in tools or []]
    return tuple(ToolSpec(f.name, f.description or "", f.parameters) for f in functions)


def stops(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop strings of a request."""
    return tuple(text for text in ([stop] if isinstance(stop, str) else stop or []) if text)


def write(answered: Answered, body: ChatRequest) -> dict[str, Any]:
    """The response to a request."""
    choices = [
        {
            "index": at,
            "message": _reply_message(reply),
            "logprobs": logprobs_of(reply) if body.logprobs else None,
            "finish_reason": reply.finish,
        }
        for at, reply in enumerate(answered.replies)
    ]
    return {
        **_head(answered, body, "chat.completion"),
        "choices": choices,
        "usage": usage(answered),
    }


def stream(answered: Answered, body: ChatRequest) -> Iterator[str]:
    """The response as server-sent events."""
    head = _head(answered, body, "chat.completion.chunk")

    def part(
        at: int, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None
    ) -> str:
        choice = {"index": at, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return event({**head, "choices": [choice]})

    for at, reply in enumerate(answered.replies):
        logprobs = logprobs_of(reply) if body.logprobs else None
        yield part(at, {"role": "assistant", "content": ""}, logprobs=logprobs)
        for text in pieces(reply.text):
            yield part(at, {"content": text})
        for number, call in enumerate(reply.calls):
            yield part(at, {"tool_calls": [{"index": number, **_called(call)}]})
        yield part(at, {}, reply.finish)
    if body.stream_options is not None and body.stream_options.include_usage:
        yield event({**head, "choices": [], "usage": usage(answered)})
    yield "data: [DONE]\n\n"


def usage(answered: Answered) -> dict[str, int]:
    """Token counts of the engine."""
    prompt, reply = answered.num_prompt_tokens, answered.num_reply_tokens
    return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}


def logprobs_of(reply: Reply) -> dict[str, Any] | None:
    """Log-probs of the sampled tokens. Tokens are named by id: not every token is valid text."""
    if reply.turn.logprobs is None:
        return None
    pairs = zip(reply.turn.response_ids.tolist(), reply.turn.logprobs.tolist(), strict=True)
    content = [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in pairs
    ]
    return {"content": content, "refusal": None}


def _head(answered: Answered, body: ChatRequest, kind: str) -> dict[str, Any]:
    model = body.model or answered.role
    created = int(time.time())
    return {"id": answered.replies[0].id, "object": kind, "created": created, "model": model}


def _message(body: ChatMessageBody) -> ChatMessage:
    speaker = "system" if body.role == "developer" else body.role
    calls = tuple(
        CalledTool(call.id, call.function.name, call.function.arguments)
        for call in body.tool_calls or []
    )
    answers = body.tool_call_id or "" if speaker == "tool" else ""
    name = body.name or "" if speaker == "tool" else ""
    text, images = read_content(body.content)
    return ChatMessage(speaker, text, calls, answers, name, images)


def _must_call(choice: str | NamedTool | None) -> str | None:
    if isinstance(choice, NamedTool):
        name = choice.function.get("name")
        if not isinstance(name, str):
            raise CallError(400, "tool_choice needs the name of a tool", "tool_choice")
        return name
    return "any" if choice == "required" else None


def _schema(form: ResponseFormat | None) -> str | None:
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return "{}"
    if form.json_schema is None or form.json_schema.json_schema_ is None:
        raise CallError(400, "json_schema needs a 'schema'", "response_format")
    return schema_text(form.json_schema.json_schema_)


def _reply_message(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.calls:
        found["content"] = reply.text or None
        found["tool_calls"] = [_called(call) for call in reply.calls]
    return found


def _called(call: CalledTool) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


CHAT = Dialect("/chat/completions", ChatRequest, read, write, stream, openai_error)
