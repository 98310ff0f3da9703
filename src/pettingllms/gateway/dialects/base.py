"""Shared parts of the dialects: request fields, sampling checks and server-sent events.

A dialect converts its JSON requests into calls, and replies into its JSON. Like other servers, it
ignores unknown keys. It rejects keys that change the sampling distribution, because the recorded
log-probs would not include their effect.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from pettingllms.gateway.calls import MAX_REPLIES, Answered, Call, CallError

PIECE = re.compile(r"\s*\S{1,24}|\s+")
"""Unit of streaming: a word, or a part of a long word."""
ItemT = TypeVar("ItemT")
Listed = Annotated[list[ItemT], Field(fail_fast=True)]
"""A list that reports only its first invalid item: errors for thousands take too long."""
Stops = Annotated[list[str], Field(fail_fast=True, max_length=64)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
NumTokens = Annotated[int, Field(ge=1, le=2**31)]
Temperature = Annotated[float, Field(ge=0, le=2)]
NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "top_p": (None, 1),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "echo": (None, False),
}
"""Values of sampling keys that do not change the distribution."""


class Body(BaseModel):
    """A part of a request."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


class JsonSchema(Body):
    """JSON schema of the reply."""

    json_schema_: dict[str, Any] | None = Field(default=None, alias="schema")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One route, with functions that parse its requests and write its responses."""

    path: str
    request: type[Body]
    read: Callable[[Any, Mapping[str, str]], Call]
    """Takes a request and its headers."""
    write: Callable[[Answered, Any], dict[str, Any]]
    stream: Callable[[Answered, Any], Iterator[str]]
    """The response as server-sent events."""
    error: Callable[[CallError], dict[str, Any]]


def check_sampling(body: Body) -> None:
    """Reject keys that change the sampling distribution."""
    for name, neutral in NEUTRAL_VALUES.items():
        value = getattr(body, name, None)
        if value not in neutral:
            raise CallError(
                400,
                f"'{name}' changes the sampling distribution, but log-probs would not include it; "
                "leave it out",
                name,
            )


def num_replies(n: int | None) -> int:
    """Number of requested replies."""
    if n is not None and not 1 <= n <= MAX_REPLIES:
        raise CallError(400, f"n is {n}; request 1 to {MAX_REPLIES} replies", "n")
    return n or 1


def schema_text(schema: Mapping[str, Any] | None) -> str:
    """A schema as text; `{}` allows any object."""
    return json.dumps(schema or {})


def encoded(data: Mapping[str, Any]) -> bytes:
    """A response as JSON. List items are encoded one by one, because encoding the log-probs of many
    replies at once would hold the GIL for too long."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    parts = [
        f"{text(name)}:" + (f"[{','.join(map(text, one))}]" if isinstance(one, list) else text(one))
        for name, one in data.items()
    ]
    return f"{{{','.join(parts)}}}".encode()


def pieces(text: str) -> Iterator[str]:
    """Split a text into pieces to stream."""
    return (found.group() for found in PIECE.finditer(text))


def event(data: Mapping[str, Any], name: str = "") -> str:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n"


def kind_of(status: int) -> str:
    """Error type in the responses of both vendors' APIs."""
    names = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    return names.get(status, "invalid_request_error" if status < 500 else "api_error")


def openai_error(error: CallError) -> dict[str, Any]:
    """An error in OpenAI's format."""
    code = "context_length_exceeded" if "max_model_len" in error.message else None
    return {
        "error": {
            "message": error.message,
            "type": kind_of(error.status),
            "param": error.param,
            "code": code,
        }
    }
