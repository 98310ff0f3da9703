"""Rollout workers: processes that sample episodes, each with its own event loop.

A worker has its own environments, tokenizers and links to the engines, so neither prompts nor
replies pass through the driver. It answers a batch of tasks with summaries; tokens and texts go to
Ray's object store (`rollouts.packed_episodes`). Seeds derive from tasks, so any number of workers
samples the same episodes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from pettingllms.cluster.engine_client import EngineClient, EngineLinks
from pettingllms.cluster.playing import EnvCallers, Play, env_of, make_worker
from pettingllms.cluster.samplers import PolicySamplers
from pettingllms.cluster.workflows import Programs
from pettingllms.config import RunConfig
from pettingllms.config.policies import ApiPolicy
from pettingllms.config.section import AlgoConfig, EnvConfig, section_of
from pettingllms.envs import Environment, Workflow
from pettingllms.gateway.gateway import LOOPBACK
from pettingllms.inference.multimodal_chat import renderers_by_policy
from pettingllms.registry import ENVIRONMENTS, SESSION
from pettingllms.rollouts import Player, in_order
from pettingllms.rollouts.packed_episodes import Packed, pack
from pettingllms.types import Episode, Task


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a rollout worker is started with."""

    config: RunConfig
    """Without sections whose classes a user's file may define; see `worker_spec`."""
    env: dict[str, Any]
    """The [env] section."""
    session_env: type | None
    """The class of an environment that exists in the driver's process only."""
    links: tuple[EngineLinks, ...]
    tag: str = ""
    """Tag of the keys of its gateway, if it plays a workflow."""
    shared_url: str = ""
    """URL of the router in front of the gateways, if there is one."""


@dataclass(frozen=True, slots=True)
class Started:
    """What a worker reports once it runs."""

    gateway_url: str = ""
    """Where its gateway listens; empty without a workflow."""
    notices: tuple[str, ...] = ()
    """What users should know."""


@dataclass(frozen=True, slots=True)
class Death:
    """An engine that a worker found dead."""

    model: int
    """Index of its model among the links."""
    at: int
    """Index of the replica."""
    generation: int
    reason: str


def worker_spec(
    config: RunConfig,
    links: Sequence[EngineLinks],
    num_workers: int,
    tag: str = "",
    shared_url: str = "",
) -> WorkerSpec:
    """The spec of one of several workers, which share the concurrency of servers evenly."""
    policies = dict(config.policies)
    for name, policy in policies.items():
        if isinstance(policy, ApiPolicy):
            share = share_of(policy.max_concurrent, 0, num_workers)
            policies[name] = policy.model_copy(update={"max_concurrent": share})
    plain = config.model_copy(
        update={"env": EnvConfig(), "algo": AlgoConfig(), "judge": None, "policies": policies}
    )
    name = config.env.id
    session = ENVIRONMENTS.load(name) if name.startswith(f"{SESSION}:") else None
    return WorkerSpec(plain, config.env.model_dump(), session, tuple(links), tag, shared_url)


def share_of(total: int, rank: int, num_workers: int) -> int:
    """The part of a total that one of several workers may use; at least 1."""
    return max(1, total // num_workers + (rank < total % num_workers))


class LinkedEngines(EngineClient):
    """Engines that another process owns. It replaces dead ones; `report` tells it."""

    def __init__(self, links: EngineLinks, index: int, deaths: "asyncio.Queue[Death]") -> None:
        super().__init__(len(links.actors), links.max_num_seqs, links.lockstep)
        self._index = index
        self._deaths = deaths
        self._actors = list(links.actors)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def replace(self, at: int, actor: Any, generation: int) -> None:
        """Use another actor as a replica from now on."""
        self._actors[at] = actor, generation
        self._waiting.pop(at).set_result(None)

    def _actor(self, at: int) -> Any:
        return self._actors[at][0]

    async def _replaced(self, at: int, error: Exception) -> None:
        if at not in self._waiting:
            self._waiting[at] = asyncio.get_running_loop().create_future()
            death = Death(self._index, at, self._actors[at][1], str(error))
            self._deaths.put_nowait(death)
        await asyncio.shield(self._waiting[at])


class RolloutWorker:
    """An actor that samples episodes of tasks; its methods run concurrently on one event loop."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._envs: dict[int, Environment[Any, Any]] = {}
        self._players: dict[tuple[Any, ...], Player] = {}
        self._callers = EnvCallers(spec.config.rollout)
        self._programs: Programs | None = None  # only for workflows

    async def start(self) -> Started:
        """Read the environment's section, load the tokenizers, and start the gateway of a
        workflow."""
        spec = self._spec
        if spec.session_env is not None:
            ENVIRONMENTS.register(spec.env["id"], spec.session_env)
        env = section_of(ENVIRONMENTS, "id", spec.env)
        self._config = spec.config.model_copy(update={"env": env})
        self._samplers = PolicySamplers(self._config, {})
        self._deaths: asyncio.Queue[Death] = asyncio.Queue()
        self._engines = [
            LinkedEngines(links, at, self._deaths) for at, links in enumerate(spec.links)
        ]
        for links, engines in zip(spec.links, self._engines, strict=True):
            policies = {name: self._config.policies[name] for name in links.policies}
            for renderer, names in renderers_by_policy(links.model, policies):
                self._samplers.add_model(names, engines, renderer, links.model)
        self._samplers.add_servers()
        if not isinstance(self._env(1), Workflow):
            return Started()
        return await self._start_programs()

    async def _start_programs(self) -> Started:
        players = self._samplers.usual_players(self._env(1))
        notices: list[str] = []
        spec = self._spec
        # The router may be on another machine; without one, only this worker's programs call.
        is_remote = spec.shared_url and self._config.cluster.address
        host: str = ray.util.get_node_ip_address() if is_remote else LOOPBACK  # type: ignore[no-untyped-call]
        self._programs = await Programs.start(
            players, notices.append, spec.tag, spec.shared_url, host
        )
        return Started(self._programs.gateway.url, tuple(notices))

    async def stop(self) -> None:
        """Stop the programs that still run, with their subprocesses."""
        if self._programs is not None:
            await self._programs.stop()

    async def ping(self) -> None:
        """A sign of life of the event loop."""

    async def play(self, play: Play, tasks: Sequence[Task]) -> Packed:
        """Episodes of some tasks, in their order."""
        env = self._env(play.level)
        episodes: list[Episode] = []
        worker = make_worker(
            play,
            tasks,
            self._config,
            env,
            lambda name: self._player(play, env, name),
            self._programs.play(play.rollout) if self._programs is not None else None,
            self._callers.of(env, play.rollout.env_timeout),
        )
        await worker.run(tasks, play.seed, episodes.append, play.first)
        return pack(in_order(episodes, tasks), self._config.trained_policies())

    async def apply(self, function: Callable[[list[Episode]], Any], episodes: list[Episode]) -> Any:
        """Call a function with episodes whose content it reads."""
        return await asyncio.to_thread(function, episodes)

    async def bound(self, rank: int, num_workers: int) -> None:
        """Use the share of the engines' slots that one of several workers has."""
        for links, engines in zip(self._spec.links, self._engines, strict=True):
            engines.bound(share_of(links.max_num_seqs, rank, num_workers))

    async def next_death(self) -> Death:
        """Wait until a request finds an engine dead."""
        return await self._deaths.get()

    async def replace(self, death: Death, actor: Any, generation: int) -> None:
        """Use the replacement of a dead engine; requests that wait for it are sent again."""
        self._engines[death.model].replace(death.at, actor, generation)

    def _env(self, level: int) -> Environment[Any, Any]:
        if level not in self._envs:
            self._envs[level] = env_of(self._config, level)
        return self._envs[level]

    def _player(self, play: Play, env: Environment[Any, Any], name: str) -> Player:
        trained, source = name in play.trained, play.sources.get(name)
        key = (
            name,
            source,
            play.level,
            play.temperature,
            trained,
            play.centralized,
            play.truncation,
        )
        if key not in self._players:
            self._players[key] = play.player(self._samplers, env, name)
        return self._players[key]
