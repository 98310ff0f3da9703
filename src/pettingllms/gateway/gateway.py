"""The gateway: a local HTTP server that answers the model calls of open episodes."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

from pettingllms.envs.workflow import Agents, RoleRule
from pettingllms.gateway.http_headers import BoundedServer, server_of
from pettingllms.gateway.keys import Keyring
from pettingllms.gateway.rate_limits import Bounds, Traffic
from pettingllms.gateway.roles import RoleMap
from pettingllms.gateway.server import make_app
from pettingllms.gateway.session import Limits, Session
from pettingllms.gateway.templates import Template
from pettingllms.rollouts.player import Player
from pettingllms.types import Episode, Renderer, Rewards

LOOPBACK = "127.0.0.1"


class Gateway:
    """Answers for the roles of all open episodes. Create one with `await Gateway.start(...)`."""

    _server: BoundedServer
    _serving: asyncio.Task[None]
    _loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        notify: Callable[[str], None],
        bounds: Bounds | None = None,
        tag: str = "",
        shared_url: str = "",
    ) -> None:
        self.keys = Keyring(tag)
        self._notify = notify
        self._bounds = bounds or Bounds()
        self._traffic = Traffic(self._bounds)
        self._templates: dict[int, tuple[Renderer, Template]] = {}
        self.app = make_app(self.keys, self._bounds, self._traffic)
        self.url = ""
        """Where it listens."""
        self._shared_url = shared_url

    @classmethod
    async def start(
        cls,
        notify: Callable[[str], None],
        bounds: Bounds | None = None,
        host: str = LOOPBACK,
        port: int = 0,
        tag: str = "",
        shared_url: str = "",
    ) -> "Gateway":
        """Start listening; port 0 picks a free port. Behind a router, `tag` marks the keys of this
        gateway, and `shared_url` is the router's URL, which programs get."""
        gateway = cls(notify, bounds, tag, shared_url)
        listening = socket.create_server((host, port), backlog=2048)
        gateway.url = "http://{}:{}".format(*listening.getsockname()[:2])
        gateway._server = server_of(gateway.app)
        gateway._loop = asyncio.get_running_loop()
        gateway._serving = asyncio.create_task(gateway._server.serve(sockets=[listening]))
        while not gateway._server.started and not gateway._serving.done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # uvicorn has no event to await
        return gateway

    async def stop(self) -> None:
        """Stop the server and abort calls in progress."""
        self._server.should_exit = True
        self._server.force_exit = True
        await self._serving

    def open(
        self,
        episode: Episode,
        players: Mapping[str, Player],
        seed: int,
        rules: Sequence[RoleRule] = (),
        limits: Limits | None = None,
    ) -> Session:
        """Open the session of an episode."""
        roles = RoleMap(tuple(players), tuple(rules))
        templates = {role: self._template(player) for role, player in players.items()}
        return Session(episode, players, roles, templates, seed, limits or Limits())

    def agents(self, session: Session) -> Agents:
        """URLs and keys for the program of an episode."""

        def post(rewards: Rewards) -> None:
            """Called on the program's thread; blocks, and raises if the session rejects them."""

            async def add() -> None:
                session.add_rewards(rewards)

            asyncio.run_coroutine_threadsafe(add(), self._loop).result()

        keys = {role: self.keys.issue(session, role) for role in session.roles.roles}
        reward_key = self.keys.issue(session, permission="reward")
        url = self._shared_url or self.url
        return Agents(url, self.keys.issue(session), keys, reward_key, session.seed, post)

    def close(self, session: Session) -> None:
        """Close the session of an episode and revoke its keys."""
        self.keys.revoke(session)
        self._traffic.forget(session)
        session.close()

    def check(self, players: Mapping[str, Player]) -> None:
        """Report roles whose chats are rendered again with every call, and why."""
        for role, player in players.items():
            template = self._template(player)
            template_name = f"the chat template of '{player.policy}' (role '{role}')"
            if template.fault:
                self._notify(
                    f"{template_name} does not preserve prefixes: {template.fault}. "
                    "Every call starts a new segment"
                )
            elif template.drops_reasoning:
                self._notify(
                    f"{template_name} removes reasoning from earlier replies. "
                    "A chat starts a new segment after a reply with reasoning"
                )

    def _template(self, player: Player) -> Template:
        key = id(player.renderer)
        if key not in self._templates:  # keeps the renderer alive, so that its id is not reused
            self._templates[key] = (player.renderer, Template(player.renderer))
        return self._templates[key][1]
