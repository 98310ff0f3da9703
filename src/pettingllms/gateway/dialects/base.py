"""What all dialects share: the fields that change sampling, streamed events.

A dialect turns the JSON of its requests into a call, and replies into its JSON. Keys that a request
has and nobody here reads are passed over, as other servers do. Those that change the distribution a
reply is drawn from are not: what cannot be part of the recorded log-probs is refused.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from pettingllms.gateway.calls import MAX_REPLIES, Answered, Call, CallError

PIECE = re.compile(r"\s*\S{1,24}|\s+")
"""What is streamed at once: a word, or a part of a long one."""
ItemT = TypeVar("ItemT")
Listed = Annotated[list[ItemT], Field(fail_fast=True)]
"""A list of which the first wrong item is reported: an error for each of many takes too long."""
Stops = Annotated[list[str], Field(fail_fast=True, max_length=64)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
NumTokens = Annotated[int, Field(ge=1, le=2**31)]
Temperature = Annotated[float, Field(ge=0, le=2)]
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
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


class Body(BaseModel):
    """A part of a request."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


class JsonSchema(Body):
    """The form that a reply should have."""

    json_schema_: dict[str, Any] | None = Field(default=None, alias="schema")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One route, and how its requests and answers are read and written."""

    path: str
    request: type[Body]
    read: Callable[[Any, Mapping[str, str]], Call]
    """From a request and its headers."""
    write: Callable[[Answered, Any], dict[str, Any]]
    stream: Callable[[Answered, Any], Iterator[str]]
    """The answer as server-sent events."""
    error: Callable[[CallError], dict[str, Any]]


def refuse_narrowing(body: Body) -> None:
    """Refuse what changes the distribution that replies are drawn from."""
    for name, neutral in NEUTRAL.items():
        value = getattr(body, name, None)
        if value not in neutral:
            raise CallError(
                400,
                f"'{name}' changes what replies are drawn from, and would not be part of their "
                "log-probs; leave it out",
                name,
            )


def num_replies(n: int | None) -> int:
    """How many replies are asked for."""
    if n is not None and not 1 <= n <= MAX_REPLIES:
        raise CallError(400, f"n is {n}; ask for 1 to {MAX_REPLIES} replies", "n")
    return n or 1


def schema_text(schema: Mapping[str, Any] | None) -> str:
    """A schema as text; `{}` is any object."""
    return json.dumps(schema or {})


def encoded(data: Mapping[str, Any]) -> bytes:
    """An answer as JSON. Items of lists are encoded one by one: in one go, the log-probs of many
    replies would hold the interpreter's lock for too long."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    parts = [
        f"{text(name)}:" + (f"[{','.join(map(text, one))}]" if isinstance(one, list) else text(one))
        for name, one in data.items()
    ]
    return f"{{{','.join(parts)}}}".encode()


def pieces(text: str) -> Iterator[str]:
    """A text as it is streamed."""
    return (found.group() for found in PIECE.finditer(text))


def event(data: Mapping[str, Any], name: str = "") -> str:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n"


def kind_of(status: int) -> str:
    """The name that both vendors' clients know an error by."""
    names = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    return names.get(status, "invalid_request_error" if status < 500 else "api_error")


def openai_error(error: CallError) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    code = "context_length_exceeded" if "max_model_len" in error.message else None
    return {
        "error": {
            "message": error.message,
            "type": kind_of(error.status),
            "param": error.param,
            "code": code,
        }
    }
