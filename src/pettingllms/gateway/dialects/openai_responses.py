"""OpenAI's Responses API. It is stateless: each request contains the whole chat."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    Listed,
    NumTokens,
    Temperature,
    check_sampling,
    event,
    openai_error,
    pieces,
    schema_text,
)
from pettingllms.gateway.dialects.openai_chat import check_top_logprobs, logprobs_of

LOGPROBS = "message.output_text.logprobs"
"""Value of `include` that requests log-probs."""


class Item(Body):
    """A part of the chat: a message, a tool call or a tool result."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None


class FunctionTool(Body):
    """A tool that the model may call."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class TextFormat(Body):
    """Format of the reply."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    form: dict[str, Any] | None = Field(default=None, alias="schema")


class TextOptions(Body):
    """Output options of the reply."""

    format: TextFormat | None = None


class ResponsesRequest(Body):
    """A request for a reply to a chat."""

    model: str = ""
    input: str | Listed[Item]
    instructions: str | None = None
    tools: Listed[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    text: TextOptions | None = None
    max_output_tokens: NumTokens | None = None
    temperature: Temperature | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: Listed[str] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    stream: bool | None = None


def read(body: ResponsesRequest, headers: Mapping[str, str]) -> Call:
    """Convert a request into a call."""
    check_sampling(body)
    for name in ("previous_response_id", "conversation", "prompt"):
        if getattr(body, name) is not None:
            raise CallError(
                400,
                f"'{name}' is not supported, because chats are not stored; send the whole chat",
                name,
            )
    check_top_logprobs(body.top_logprobs)
    system = [ChatMessage("system", body.instructions)] if body.instructions else []
    messages = (*system, *_messages(body.input))
    if not messages:
        raise CallError(400, "the input is empty", "input")
    none = body.tool_choice == "none"
    return Call(
        model=body.model,
        messages=messages,
        tools=() if none else tuple(_tool(tool) for tool in body.tools or []),
        must_call=_must_call(body.tool_choice),
        schema=_schema(body.text),
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        headers=headers,
    )


def write(answered: Answered, body: ResponsesRequest) -> dict[str, Any]:
    """The response to a request."""
    reply = answered.replies[0]
    cut = reply.finish == "length"
    prompt, written = answered.num_prompt_tokens, answered.num_reply_tokens
    return {
        "id": reply.id.replace("chatcmpl-", "resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "model": body.model or answered.role,
        "instructions": body.instructions,
        "output": _output(reply, LOGPROBS in (body.include or [])),
        "parallel_tool_calls": True,
        "tool_choice": body.tool_choice or "auto",
        "tools": [tool.model_dump() for tool in body.tools or []],
        "temperature": body.temperature,
        "top_p": body.top_p,
        "metadata": {},
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + written,
        },
    }


def stream(answered: Answered, body: ResponsesRequest) -> Iterator[str]:
    """The response as server-sent events."""
    whole = write(answered, body)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    parts = [("response.created", {"response": begun})]
    parts += [("response.in_progress", {"response": begun})]
    for at, item in enumerate(whole["output"]):
        parts += _item_events(at, item)
    ended = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
    parts.append((ended, {"response": whole}))
    for number, (name, data) in enumerate(parts):
        yield event({"type": name, "sequence_number": number, **data}, name)


def _item_events(at: int, item: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    where = {"output_index": at, "item_id": item["id"]}
    added = {"output_index": at, "item": {**item, "status": "in_progress"}}
    done = ("response.output_item.done", {"output_index": at, "item": item})
    if item["type"] == "function_call":
        added["item"] = {**item, "status": "in_progress", "arguments": ""}
        arguments = item["arguments"]
        return [
            ("response.output_item.added", added),
            ("response.function_call_arguments.delta", {**where, "delta": arguments}),
            ("response.function_call_arguments.done", {**where, "arguments": arguments}),
            done,
        ]
    (part,) = item["content"]
    added["item"] = {**item, "status": "in_progress", "content": []}
    where["content_index"] = 0
    deltas = [
        ("response.output_text.delta", {**where, "delta": text, "logprobs": []})
        for text in pieces(part["text"])
    ]
    return [
        ("response.output_item.added", added),
        ("response.content_part.added", {**where, "part": {**part, "text": ""}}),
        *deltas,
        ("response.output_text.done", {**where, "text": part["text"], "logprobs": []}),
        ("response.content_part.done", {**where, "part": part}),
        done,
    ]


def _output(reply: Reply, with_logprobs: bool) -> list[dict[str, Any]]:
    name = reply.id.removeprefix("chatcmpl-")
    found: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for call in reply.calls
    ]
    if reply.text or not found:
        sampled = (logprobs_of(reply) if with_logprobs else None) or {"content": []}
        logprobs = [{**one, "bytes": []} for one in sampled["content"]]
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": logprobs}
        status = "incomplete" if reply.finish == "length" else "completed"
        message = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": status}
        found.insert(0, {**message, "content": [part]})
    return found


def _messages(items: str | list[Item]) -> Iterator[ChatMessage]:
    """The chat. The text of a reply and its tool calls are separate items but one message."""
    if isinstance(items, str):
        yield ChatMessage("user", items)
        return
    reply: ChatMessage | None = None
    calls: list[CalledTool] = []
    for item in items:
        if item.type == "reasoning":
            continue
        message = _message(item)
        if message.calls and reply is not None:
            calls += message.calls
            continue
        if reply is not None:
            yield replace(reply, calls=tuple(calls))
        reply, calls = (message, [*message.calls]) if message.speaker == "assistant" else (None, [])
        if reply is None:
            yield message
    if reply is not None:
        yield replace(reply, calls=tuple(calls))


def _message(item: Item) -> ChatMessage:
    if item.type == "function_call":
        if item.call_id is None or item.name is None:
            raise CallError(400, "function_call items need a call_id and a name", "input")
        called = CalledTool(item.call_id, item.name, item.arguments or "{}")
        return ChatMessage("assistant", calls=(called,))
    if item.type == "function_call_output":
        result, images = read_content(item.output, "input")
        return ChatMessage("tool", result, answers=item.call_id or "", images=images)
    if item.type != "message" or item.role is None:
        raise CallError(
            400, f"unsupported input item '{item.type[:40]}', or a message without a role", "input"
        )
    speaker = "system" if item.role == "developer" else item.role
    text, images = read_content(item.content, "input")
    return ChatMessage(speaker, text, images=images)


def _tool(tool: FunctionTool) -> ToolSpec:
    if tool.type != "function" or not tool.name:
        raise CallError(
            400, f"unsupported tool type '{tool.type[:40]}'; send functions with a name", "tools"
        )
    return ToolSpec(tool.name, tool.description or "", tool.parameters)


def _must_call(choice: str | dict[str, Any] | None) -> str | None:
    if isinstance(choice, dict):
        if not isinstance(choice.get("name"), str):
            raise CallError(400, "tool_choice needs the name of a tool", "tool_choice")
        return str(choice["name"])
    return "any" if choice == "required" else None


def _schema(text: TextOptions | None) -> str | None:
    if text is None or text.format is None or text.format.type == "text":
        return None
    if text.format.type == "json_schema" and text.format.form is None:
        raise CallError(400, "json_schema needs a 'schema'", "text")
    return schema_text(text.format.form)


RESPONSES = Dialect("/responses", ResponsesRequest, read, write, stream, openai_error)
