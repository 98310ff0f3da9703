"""An environment behind OpenEnv's own HTTP and WebSocket server. Needs the `openenv` package."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Callable
from typing import Any

from fastapi import WebSocketDisconnect
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment as OpenEnvEnvironment
from openenv.core.env_server.types import (
    Action,
    ConcurrencyConfig,
    EnvironmentMetadata,
    Observation,
    State,
)
from pydantic import ConfigDict, Field

from pettingllms.envs.openenv.fields import read_object
from pettingllms.envs.openenv.served import Served
from pettingllms.envs.openenv.sessions import PlaySession
from pettingllms.envs.openenv.wire import MAX_REQUEST
from pettingllms.errors import PettingError, WireError

CLOSE_SECONDS = 5


class Reply(Action):
    """The replies of a step. `text` is enough for one role."""

    # Checked in `sessions`, where an error says what to send instead.
    model_config = ConfigDict(extra="allow")

    text: Any = Field(None, json_schema_extra={"type": "string"}, description="Reply of a role.")
    role: Any = Field(None, json_schema_extra={"type": "string"}, description="Role that replies.")
    replies: Any = Field(None, json_schema_extra={"type": "object"}, description="Text by role.")
    state: Any = Field(None, json_schema_extra={"type": "integer"}, description="State to step.")
    ask: Any = Field(None, json_schema_extra={"type": "object"}, description="Ask a player.")


class View(Observation):
    """What the roles of a session see."""

    role: str = Field("", description="Role that the messages are for; empty at the end.")
    messages: list[Any] = Field(default_factory=list, description="Chat messages to reply to.")
    acting: list[str] = Field(default_factory=list, description="Roles that have to reply.")
    observations: dict[str, Any] = Field(default_factory=dict, description="Messages by role.")
    state: int = Field(0, description="Number of the state, to step from it again.")
    rewards: dict[str, Any] = Field(default_factory=dict, description="Rewards by level and role.")
    metrics: dict[str, float] = Field(default_factory=dict)
    submissions: dict[str, Any] = Field(default_factory=dict, description="Work to judge.")
    silence: dict[str, str] = Field(default_factory=dict, description="No-op replies.")
    success: dict[str, bool] = Field(default_factory=dict, description="At the end, by role.")
    answers: dict[str, str] = Field(default_factory=dict, description="At the end, by role.")
    reply: str | None = Field(None, description="Reply of the player that was asked.")


class Session(OpenEnvEnvironment[Reply, View, State]):
    """One connection. OpenEnv calls it on a thread of the session."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, served: Served) -> None:
        super().__init__()
        self._served = served
        self._play = PlaySession(served)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> View:
        return View(**self._play.reset({"seed": seed, "episode_id": episode_id, **kwargs}))

    def step(self, action: Reply, timeout_s: float | None = None, **kwargs: Any) -> View:
        given = action.model_dump(exclude_unset=True)
        return View(**self._play.step(given))

    @property
    def state(self) -> State:
        return State(**self._play.describe())

    def get_metadata(self) -> EnvironmentMetadata:
        info = self._served.info
        return EnvironmentMetadata(
            name=info.env,
            description=f"Roles: {', '.join(info.roles)}. Served by PettingLLMs.",
            version=info.env.rpartition("-")[2],
        )

    def close(self) -> None:
        self._play.close()


def make_app(served: Served, max_sessions: int, session_timeout: float) -> Any:
    """The application that OpenEnv makes, with readable errors for its HTTP requests."""
    from fastapi.responses import JSONResponse

    logging.getLogger("uvicorn.error").addFilter(_is_news)
    limits = ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=session_timeout)

    def make_session() -> Session:
        return Session(served)

    app = create_fastapi_app(make_session, Reply, View, concurrency_config=limits)

    async def refuse(_: Any, error: Exception) -> Any:
        return JSONResponse({"detail": str(error)}, status_code=400)

    app.add_exception_handler(PettingError, refuse)
    app.add_middleware(_CheckedMessages)
    return app


class _CheckedMessages:
    """Answers WebSocket messages that are no JSON object, at which OpenEnv ends the session."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def receive_object() -> Any:
            while True:
                message = await receive()
                if message["type"] != "websocket.receive":
                    return message
                text = message.get("text")
                if text is None:
                    text = (message.get("bytes") or b"").decode(errors="replace")
                try:
                    read_object(text, "the message")
                except WireError as error:
                    data = {"message": str(error), "code": "INVALID_JSON"}
                    answer = json.dumps({"type": "error", "data": data})
                    await send({"type": "websocket.send", "text": answer})
                else:
                    return {"type": "websocket.receive", "text": text}

        is_session = scope["type"] == "websocket" and scope["path"].endswith("/ws")
        await self._app(scope, receive_object if is_session else receive, send)


def serve(
    served: Served,
    listening: socket.socket,
    max_sessions: int,
    session_timeout: float,
    ready: Callable[[], None],
) -> None:
    """Serve until the process is stopped."""
    import uvicorn

    app = make_app(served, max_sessions, session_timeout)
    config = uvicorn.Config(
        app,
        log_level="warning",
        ws_max_size=MAX_REQUEST,
        ws_ping_timeout=None,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )

    class Announced(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                ready()

    server = Announced(config)
    try:
        asyncio.run(server.serve([listening]))
    except KeyboardInterrupt:
        sys.stderr.write("\n")


def _is_news(record: logging.LogRecord) -> bool:
    """False for the traceback of a client that left without a close message."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, WebSocketDisconnect)
