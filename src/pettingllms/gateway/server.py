"""The routes: who calls is found, what is asked is understood, and the answer is delivered.

There is nothing here but calls for replies, the rewards of an episode and the names of its roles:
no route reaches an engine's own.
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
from pettingllms.gateway.roles import held_headers
from pettingllms.gateway.session import Session
from pettingllms.gateway.threads import off_loop
from pettingllms.types import Rewards, Scored

DIALECTS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
PREFIXES = ("/v1", "/roles/{role}/v1")
REWARD_BYTES = 10_000
"""Of a posted reward."""
EVENTS_AT_ONCE = 16
"""Streamed events after which other calls get their turn."""
SET_ASIDE = "x-pettingllms-set-aside"
Endpoint = Callable[[Request], Awaitable[Response]]


class RewardBody(BaseModel):
    """A reward that a program posts while it runs."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    level: Literal["process", "agent", "team"]
    value: float
    role: str | None = None
    """Who is paid; the team has no role."""
    reply: str | None = None
    """Id of the chat completion that is paid for; else the latest."""


def make_app(keys: Keyring, bounds: Bounds, traffic: Traffic) -> Starlette:
    """The gateway as an ASGI application."""

    def found(request: Request, permission: Permission = "call") -> tuple[Session, str | None]:
        if b"%2f" in request.scope["raw_path"].lower():
            raise CallError(404, "a role's name in a path has no slash")
        grant = keys.find(tokens_in(request.headers.raw))
        require(grant, permission)
        return grant.session, bound_role(grant, request.path_params.get("role"))

    def calling(dialect: Dialect) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session, role = found(request)
            async with traffic.admitted(session):
                sent, headers = await read_body(request, bounds), held_headers(request.headers)
                body, call = await off_loop(len(sent), read, dialect, sent, headers, bounds)
                answered = await session.answer(call, role)
            aside = {SET_ASIDE: ", ".join(answered.set_aside)} if answered.set_aside else {}
            if getattr(body, "stream", False):
                parts = _streamed(request, session, answered, dialect.stream(answered, body))
                return StreamingResponse(parts, media_type="text/event-stream", headers=aside)
            whole = await off_loop(len(sent), lambda: encoded(dialect.write(answered, body)))
            if not await request.is_disconnected():
                session.deliver(answered)
            return Response(whole, media_type="application/json", headers=aside)

        return _speaking(dialect.error, endpoint)

    async def pay(request: Request) -> Response:
        session, role = found(request, "reward")
        async with traffic.admitted(session):
            sent = await read_body(request, bounds, REWARD_BYTES)
            body = RewardBody.model_validate(parse_json(sent, bounds))
        session.pay(_rewards(body, role), body.reply)
        return JSONResponse({"paid": True})

    async def models(request: Request) -> Response:
        session, role = found(request)
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
        routes.append(Route(f"{prefix}/rewards", _speaking(openai_error, pay), methods=["POST"]))
        routes.append(Route(f"{prefix}/models", _speaking(openai_error, models), methods=["GET"]))
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_route})


def read(
    dialect: Dialect, sent: bytes, headers: Mapping[str, str], bounds: Bounds
) -> tuple[Body, Call]:
    """A request, and the call in it. Takes time that grows with it: not for the event loop."""
    body = dialect.request.model_validate(parse_json(sent, bounds))
    call = replace(dialect.read(body, headers), num_bytes=len(sent))
    num = len(call.messages) + sum(len(message.calls) for message in call.messages)
    if num > bounds.max_messages:
        most = f"at most {bounds.max_messages:,} are accepted"
        raise CallError(400, f"the chat has {num:,} messages and tool calls; {most}", "messages")
    return body, call


def require(grant: Grant, permission: Permission) -> None:
    """Reject a key that was issued for something else."""
    if grant.permission == permission:
        return
    if permission == "reward":
        raise CallError(403, "this key only calls roles; post rewards with `agents.reward_key`")
    raise CallError(403, "this key only posts rewards; call with `agents.key` or a role's key")


def bound_role(grant: Grant, path: str | None) -> str | None:
    """The role that key and path name, if they do; they must not differ."""
    if grant.role is not None and path not in (None, grant.role):
        raise CallError(403, "this key is for another role")
    return grant.role if path is None else path


def _speaking(error: Callable[[CallError], dict[str, Any]], endpoint: Endpoint) -> Endpoint:
    """An endpoint whose refusals are told in its dialect."""

    async def speak(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            refused = CallError(400, f"{where}: {first['msg']}"[:400], where)
        except RecursionError:  # a template walks deeper than whoever read the body
            refused = CallError(400, "what was sent is nested too deeply")
        except CallError as problem:
            refused = problem
        again = {"retry-after": "1"} if refused.status == 429 else {}
        return JSONResponse(error(refused), refused.status, headers=again)

    return speak


async def _streamed(
    request: Request, session: Session, answered: Answered, parts: Any
) -> AsyncIterator[str]:
    """The events of a reply. One that is not taken to its end was not delivered."""
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
        raise CallError(403, f"the path rewards the role '{bound}' only", "role")
    try:
        paid = Scored(body.value)
    except ValueError as error:
        raise CallError(400, str(error), "value") from None
    if body.level == "team":
        return Rewards(team=paid)
    if role is None:
        raise CallError(400, f"a reward of the level '{body.level}' needs a role", "role")
    return Rewards({role: paid}) if body.level == "process" else Rewards(agent={role: paid})


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what the handler is registered for
    refused = CallError(error.status_code, f"{error.detail}; there is no such route")
    return JSONResponse(openai_error(refused), error.status_code, headers=error.headers)
