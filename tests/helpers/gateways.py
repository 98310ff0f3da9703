"""A gateway that really listens, in front of samplers that a test steers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from toys import AnsweringSampler

from pettingllms.envs import Agents, RoleRule
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.rate_limits import Bounds
from pettingllms.gateway.session import Limits, Session
from pettingllms.rollouts.player import Player
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.types import Episode, SampleRequest, Task

ResultT = TypeVar("ResultT")


def prompt_of(request: SampleRequest) -> str:
    return bytes(request.prompt_ids.tolist()).decode()


def say_hello(request: SampleRequest, number: int) -> str:
    return f"hello from {request.role}, {len(request.prompt_ids)}"


class Served:
    """One open episode of a gateway, and what its samplers were asked."""

    def __init__(self, gateway: Gateway, session: Session, sampler: AnsweringSampler) -> None:
        self.gateway = gateway
        self.session = session
        self.sampler = sampler
        self.agents: Agents = gateway.agents(session)
        self._clients: list[Any] = []

    def openai(self, role: str | None = None, **options: Any) -> Any:
        import openai

        client = openai.AsyncOpenAI(**{**self.agents.openai(role), **options})
        self._clients.append(client)
        return client

    def anthropic(self, role: str | None = None, **options: Any) -> Any:
        import anthropic

        client = anthropic.AsyncAnthropic(**{**self.agents.anthropic(role), **options})
        self._clients.append(client)
        return client

    async def leave(self) -> None:
        for client in self._clients:
            await client.close()

    @property
    def turns(self) -> list[Any]:
        return self.session.episode.turns

    def another(self, name: str = "t/1") -> "Served":
        episode = Episode(name, "program-v1", Task("t"), 0)
        session = self.gateway.open(episode, self.session.players, 2)
        return Served(self.gateway, session, self.sampler)

    def close(self) -> Episode:
        self.gateway.close(self.session)
        return self.session.episode


def served(
    work: Callable[[Served], Awaitable[ResultT]],
    answer: Any = say_hello,
    roles: Sequence[str] = ("planner", "worker"),
    rules: Sequence[RoleRule] = (),
    trained: bool = True,
    rests: bool = False,
    bounds: Bounds | None = None,
    limits: Limits | None = None,
    renderer: Any = None,
) -> ResultT:
    """What the work comes to, with a gateway while it lasts."""

    async def run() -> ResultT:
        sampler = AnsweringSampler(answer)
        gateway = await Gateway.start(lambda _: None, bounds)
        players = {
            role: Player(f"{role}_policy", sampler, renderer or ByteRenderer(), trained, rests)
            for role in roles
        }
        episode = Episode("t/0", "program-v1", Task("t"), 0)
        session = gateway.open(episode, players, 1, rules, limits)
        gate = Served(gateway, session, sampler)
        try:
            return await work(gate)
        finally:
            await gate.leave()
            await gateway.stop()

    return asyncio.run(run())
