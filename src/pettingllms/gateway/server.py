"""HTTP routes: authenticate a request, parse it, and deliver the answer.

The routes only accept model calls and rewards, and list roles. None exposes an engine's own API.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pettingllms.gateway.calls import Answered, Call, CallError
from pettingllms.gateway.dialects.anthropic_messages import MESSAGES
from pettingllms.gateway.dialects.base import Body, Dialect, encoded, openai_error
from pettingllms.gateway.dialects.openai_chat import CHAT
from pettingllms.gateway.dialects.openai_completions import COMPLETIONS
from pettingllms.gateway.dialects.openai_responses import RESPONSES
from pettingllms.gateway.keys import Grant, Keyring, Permission, tokens_in
from pettingllms.gateway.rate_limits import Bounds, Traffic, parse_json, read_body
from pettingllms.gateway.roles import without_keys
from pettingllms.gateway.session import Session
from pettingllms.gateway.threads import off_loop
from pettingllms.types import Rewards, Scored

DIALECTS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
PREFIXES = ("/v1", "/roles/{role}/v1")
MAX_REWARD_BYTES = 10_000
"""Size of the body of a posted reward."""
EVENTS_AT_ONCE = 16
"""Streamed events before the event loop serves other calls."""
IGNORED_HEADER = "x-pettingllms-set-aside"
"""Lists the settings of a request that do not apply."""
Endpoint = Callable[[Request], Awaitable[Response]]


class RewardBody(BaseModel):
    """A reward that a program posts while it runs."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    level: Literal["process", "agent", "team"]
    value: float
    role: str | None = None
    """Role that receives the reward; None for team rewards."""
    reply: str | None = None
    """Id of the rewarded chat completion; None: the latest."""


def make_app(keys: Keyring, bounds: Bounds, traffic: Traffic) -> Starlette:
    """The gateway as an ASGI application."""

    def authenticate(
        request: Request, permission: Permission = "call"
    ) -> tuple[Session, str | None]:
        if b"%2f" in request.scope["raw_path"].lower():
            raise CallError(404, "role names in paths cannot contain slashes")
        grant = keys.find(tokens_in(request.headers.raw))
        require(grant, permission)
        return grant.session, bound_role(grant, request.path_params.get("role"))

    def calling(dialect: Dialect) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session, role = authenticate(request)
            async with traffic.admitted(session):
                sent, headers = await read_body(request, bounds), without_keys(request.headers)
                body, call = await off_loop(len(sent), read, dialect, sent, headers, bounds)
                answered = await session.answer(call, role)
            extra = {IGNORED_HEADER: ", ".join(answered.ignored)} if answered.ignored else {}
            if getattr(body, "stream", False):
                parts = _streamed(request, session, answered, dialect.stream(answered, body))
                return StreamingResponse(parts, media_type="text/event-stream", headers=extra)
            whole = await off_loop(len(sent), lambda: encoded(dialect.write(answered, body)))
            if not await request.is_disconnected():
                session.deliver(answered)
            return Response(whole, media_type="application/json", headers=extra)

        return _with_errors(dialect.error, endpoint)

    async def reward(request: Request) -> Response:
        session, role = authenticate(request, "reward")
        async with traffic.admitted(session):
            sent = await read_body(request, bounds, MAX_REWARD_BYTES)
            body = RewardBody.model_validate(parse_json(sent, bounds))
        session.add_rewards(_rewards(body, role), body.reply)
        return JSONResponse({"paid": True})

    async def models(request: Request) -> Response:
        session, role = authenticate(request)
        names = [role] if role is not None else session.roles.roles
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": "pettingllms"}
            for name in names
        ]
        return JSONResponse({"object": "list", "data": listed})

    routes = [
        Route(prefix + dialect.path, calling(dialect), methods=["POST"])
        for prefix in PREFIXES
        for dialect in DIALECTS
    ]
    for prefix in PREFIXES:
        routes.append(
            Route(f"{prefix}/rewards", _with_errors(openai_error, reward), methods=["POST"])
        )
        routes.append(
            Route(f"{prefix}/models", _with_errors(openai_error, models), methods=["GET"])
        )
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_route})


def read(
    dialect: Dialect, sent: bytes, headers: Mapping[str, str], bounds: Bounds
) -> tuple[Body, Call]:
    """Parse a request into a call. Large requests take long: not for the event loop."""
    body = dialect.request.model_validate(parse_json(sent, bounds))
    call = replace(dialect.read(body, headers), num_bytes=len(sent))
    num = len(call.messages) + sum(len(message.calls) for message in call.messages)
    if num > bounds.max_messages:
        most = f"at most {bounds.max_messages:,} are allowed"
        raise CallError(400, f"the chat has {num:,} messages and tool calls; {most}", "messages")
    return body, call


def require(grant: Grant, permission: Permission) -> None:
    """Reject a key without the permission."""
    if grant.permission == permission:
        return
    if permission == "reward":
        raise CallError(403, "this key only calls roles; post rewards with `agents.reward_key`")
    raise CallError(403, "this key only posts rewards; call with `agents.key` or a role's key")


def bound_role(grant: Grant, path: str | None) -> str | None:
    """The role that the key or the path names, if any. Rejects conflicting names."""
    if grant.role is not None and path not in (None, grant.role):
        raise CallError(403, "this key is for another role")
    return grant.role if path is None else path


def _with_errors(error: Callable[[CallError], dict[str, Any]], endpoint: Endpoint) -> Endpoint:
    """An endpoint that reports errors in its dialect's format."""

    async def respond(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            rejected = CallError(400, f"{where}: {first['msg']}"[:400], where)
        except RecursionError:  # a template recurses deeper than the JSON parser
            rejected = CallError(400, "the request is nested too deeply")
        except CallError as problem:
            rejected = problem
        retry = {"retry-after": "1"} if rejected.status == 429 else {}
        return JSONResponse(error(rejected), rejected.status, headers=retry)

    return respond


async def _streamed(
    request: Request, session: Session, answered: Answered, parts: Any
) -> AsyncIterator[str]:
    """Stream events. The reply is delivered if the client is connected before the last event."""
    held = ""
    for number, part in enumerate(parts):
        if held:
            yield held
        held = part
        if number % EVENTS_AT_ONCE == 0:
            await asyncio.sleep(0)
    if not await request.is_disconnected():
        session.deliver(answered)
    yield held


def _rewards(body: RewardBody, bound: str | None) -> Rewards:
    role = body.role if bound is None else bound
    if body.role not in (None, role) or (bound is not None and body.level == "team"):
        raise CallError(403, f"this path only rewards the role '{bound}'", "role")
    try:
        score = Scored(body.value)
    except ValueError as error:
        raise CallError(400, str(error), "value") from None
    if body.level == "team":
        return Rewards(team=score)
    if role is None:
        raise CallError(400, f"rewards of level '{body.level}' need a role", "role")
    return Rewards({role: score}) if body.level == "process" else Rewards(agent={role: score})


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    rejected = CallError(error.status_code, f"{error.detail}; no such route")
    return JSONResponse(openai_error(rejected), error.status_code, headers=error.headers)
