"""The routes: who calls is found, what is asked is understood, and the answer is delivered.

There is nothing here but calls for replies, the rewards of an episode and the names of its roles:
no route reaches an engine's own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pettingllms.gateway.anthropic_messages import MESSAGES
from pettingllms.gateway.bounds import Bounds, Traffic, read_json
from pettingllms.gateway.calls import Answered, CallError
from pettingllms.gateway.dialects import Dialect, openai_error
from pettingllms.gateway.keys import Grant, Keyring, Permission, tokens_in
from pettingllms.gateway.openai_chat import CHAT
from pettingllms.gateway.openai_completions import COMPLETIONS
from pettingllms.gateway.openai_responses import RESPONSES
from pettingllms.gateway.roles import held_headers
from pettingllms.gateway.session import Session
from pettingllms.types import Rewards, Scored

DIALECTS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
PREFIXES = ("/v1", "/roles/{role}/v1")
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
                body = dialect.request.model_validate(await read_json(request, bounds))
                call = dialect.read(body, held_headers(request.headers))
                answered = await session.answer(call, role)
            headers = {SET_ASIDE: ", ".join(answered.set_aside)} if answered.set_aside else {}
            if getattr(body, "stream", False):
                parts = _streamed(request, session, answered, dialect.stream(answered, body))
                return StreamingResponse(parts, media_type="text/event-stream", headers=headers)
            if not await request.is_disconnected():
                session.deliver(answered)
            return JSONResponse(dialect.write(answered, body), headers=headers)

        return _speaking(dialect.error, endpoint)

    async def pay(request: Request) -> Response:
        session, role = found(request, "reward")
        async with traffic.admitted(session):
            body = RewardBody.model_validate(await read_json(request, bounds))
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
            first = problem.errors()[0]
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
    for part in parts:
        if held:
            yield held
        held = part
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
