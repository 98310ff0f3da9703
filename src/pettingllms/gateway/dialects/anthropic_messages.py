"""Anthropic's Messages API."""

import json
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
from pettingllms.gateway.contents import Content, ContentPart, read_content, read_text
from pettingllms.gateway.dialects.base import (
    Body,
    Dialect,
    Listed,
    NumTokens,
    Stops,
    Temperature,
    check_sampling,
    event,
    kind_of,
    pieces,
    schema_text,
)


class Block(ContentPart):
    """A part of a message: text, an image, a tool call or a tool result."""

    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Content | None = None


class MessageBody(Body):
    """A message."""

    role: Literal["user", "assistant"]
    content: str | Listed[Block]


class ToolBody(Body):
    """A tool that the model may call."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(Body):
    """Whether the model must call a tool."""

    type: Literal["auto", "any", "tool", "none"] = "auto"
    name: str | None = None


class OutputFormat(Body):
    """Format of the reply."""

    type: Literal["json_schema"]
    form: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """Output options of the reply."""

    format: OutputFormat | None = None


class MessagesRequest(Body):
    """A request for a reply to a chat."""

    model: str = ""
    max_tokens: NumTokens
    messages: Listed[MessageBody] = Field(min_length=1)
    system: Content | None = None
    tools: Listed[ToolBody] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    temperature: Temperature | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: Stops | None = None
    stream: bool | None = None


def read(body: MessagesRequest, headers: Mapping[str, str]) -> Call:
    """Convert a request into a call."""
    check_sampling(body)
    if body.messages[-1].role == "assistant":
        raise CallError(
            400,
            "the last message must be from the user; prefilled replies are not supported",
            "messages",
        )
    system = [ChatMessage("system", read_text(body.system, "system"))] if body.system else []
    chat = [part for message in body.messages for part in _messages(message)]
    choice = body.tool_choice or ToolChoice()
    if choice.type == "tool" and choice.name is None:
        raise CallError(400, "tool_choice needs the name of a tool", "tool_choice")
    form = body.output_config.format if body.output_config else None
    return Call(
        model=body.model,
        messages=(*system, *chat),
        tools=() if choice.type == "none" else tuple(map(_tool, body.tools or [])),
        must_call={"any": "any", "tool": choice.name}.get(choice.type),
        schema=None if form is None else schema_text(form.form),
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        stop=tuple(text for text in body.stop_sequences or [] if text),
        headers=headers,
    )


def write(answered: Answered, body: MessagesRequest) -> dict[str, Any]:
    """The response to a request."""
    reply = answered.replies[0]
    stopped = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
    return {
        "id": reply.id.replace("chatcmpl-", "msg_"),
        "type": "message",
        "role": "assistant",
        "model": body.model or answered.role,
        "content": _content(reply),
        "stop_reason": "stop_sequence" if reply.stopped_by else stopped[reply.finish],
        "stop_sequence": reply.stopped_by,
        "usage": {
            "input_tokens": answered.num_prompt_tokens,
            "output_tokens": answered.num_reply_tokens,
        },
    }


def stream(answered: Answered, body: MessagesRequest) -> Iterator[str]:
    """The response as server-sent events."""
    whole = write(answered, body)
    usage = {**whole["usage"], "output_tokens": 0}
    begun = {**whole, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield _event("message_start", message=begun)
    for at, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": text} for text in pieces(block["text"])]
        else:
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield _event("content_block_start", index=at, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=at, delta=delta)
        yield _event("content_block_stop", index=at)
    ended = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
    yield _event("message_delta", delta=ended, usage=whole["usage"])
    yield _event("message_stop")


def error(problem: CallError) -> dict[str, Any]:
    """An error in Anthropic's format."""
    found = {"type": kind_of(problem.status), "message": problem.message}
    return {"type": "error", "error": found}


def _event(name: str, **data: Any) -> str:
    return event({"type": name, **data}, name)


def _content(reply: Reply) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": reply.text, "citations": None}]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.values}
        for call in reply.calls
    ]
    return [*(text if reply.text or not calls else []), *calls]


def _tool(tool: ToolBody) -> ToolSpec:
    if (kind := tool.type or "custom") != "custom":
        raise CallError(
            400, f"unsupported tool type '{kind[:40]}'; only custom tools are supported", "tools"
        )
    return ToolSpec(tool.name, tool.description or "", tool.input_schema)


def _messages(body: MessageBody) -> Iterator[ChatMessage]:
    """Split a message into chat messages: tool results come before the rest of the content."""
    if isinstance(body.content, str):
        yield ChatMessage(body.role, body.content)
        return
    blocks, calls = [], []
    for block in body.content:
        match block.type:
            case "tool_use":
                if block.id is None or block.name is None:
                    raise CallError(400, "tool_use blocks need an id and a name", "messages")
                calls.append(CalledTool(block.id, block.name, json.dumps(block.input or {})))
            case "tool_result":
                result, images = read_content(block.content)
                yield ChatMessage("tool", result, answers=block.tool_use_id or "", images=images)
            case "thinking" | "redacted_thinking":
                pass
            case _:
                blocks.append(block)
    text, images = read_content(blocks)
    if text or images or calls or all(block.type != "tool_result" for block in body.content):
        yield ChatMessage(body.role, text, tuple(calls), images=images)


MESSAGES = Dialect("/messages", MessagesRequest, read, write, stream, error)
