"""Search for a team graph by evolution, with frozen executors and an exact budget of episodes.

The search is a designer without weights: it proposes graphs, evaluates them by ordinary rollouts of
`team_design-v1`, keeps the best and changes them. All graphs of one generation get the same tasks.
A graph that survives is evaluated again on new tasks, so luck does not last. The result is the
graph with the best lower bound.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import make_env
from pettingllms.envs.tasks.team_design import TeamDesign, TeamGraph
from pettingllms.envs.tasks.team_design.graph import graph_text, short_text
from pettingllms.envs.tasks.team_design.structures import mutated, pruned, random_graph
from pettingllms.errors import ConfigError, SamplerError
from pettingllms.evaluation.players import ServerOptions, open_players, parse_keys, parse_player
from pettingllms.rollouts import Player, Worker
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Scored, Task

NUM_SHOWN = 10
"""Graphs in the results, best first."""


@dataclass(frozen=True, slots=True)
class TeamSearch:
    """What to search, with which executors, and how long."""

    executors: str = "noisy"
    """Player of all executors: a scripted player, a run folder, or a server."""
    num_episodes: int = 4000
    """Episodes in all; the search uses exactly as many, unless `max_tokens` ends it."""
    max_tokens: int | None = None
    """Tokens in all, after which no further generation starts."""
    seed: int = 0
    population: int = 12
    """Graphs per generation: a third are the best so far, the others are new."""
    episodes_per_graph: int = 10
    """Episodes per graph and generation."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `team_design-v1`."""
    keys: Sequence[str] = ()
    """Names of environment variables with servers' keys."""

    def __post_init__(self) -> None:
        for name in ("num_episodes", "population", "episodes_per_graph"):
            if getattr(self, name) < 1:
                raise ConfigError(name, [f"is {getattr(self, name)}; expected at least 1"])
        if self.options.get("design"):
            raise ConfigError("design", ["fixes the graph that is searched for; leave it out"])
        if self.options.get("solo"):
            raise ConfigError("solo", ["has one role and no executors; leave it out"])


@dataclass(slots=True)
class Record:
    """The episodes of one graph so far."""

    graph: TeamGraph
    num_episodes: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """Mean return: success minus the cost of the turns."""
        return self.total / self.num_episodes if self.num_episodes else 0.0

    @property
    def rank(self) -> float:
        """Mean minus 1.5 standard errors of a coin, so that luck with few episodes does not win."""
        return self.mean - 0.75 / self.num_episodes**0.5 if self.num_episodes else -1.0

    def to_json(self) -> dict[str, Any]:
        """The graph and its estimate, as plain data."""
        return {
            "graph": short_text(self.graph),
            "return": round(self.mean, 4),
            "episodes": self.num_episodes,
        }


@dataclass(frozen=True, slots=True)
class FoundTeam:
    """The result of a search."""

    best: TeamGraph
    num_episodes: int
    num_tokens: int
    curve: list[dict[str, Any]]
    """After each generation: episodes and tokens so far, the best graph and its estimate."""
    graphs: list[dict[str, Any]]
    """The best graphs."""

    def to_json(self) -> dict[str, Any]:
        """The result as plain data; `design` is a value for `env.design`."""
        return {
            "design": graph_text(self.best),
            "num_episodes": self.num_episodes,
            "num_tokens": self.num_tokens,
            "curve": self.curve,
            "graphs": self.graphs,
        }


def search_team(
    search: TeamSearch, notify: Callable[[str], None] = lambda _text: None
) -> FoundTeam:
    """Search until the budget is used; `notify` gets a line per generation."""
    env = make_env("team_design-v1", **search.options)
    assert isinstance(env, TeamDesign)  # noqa: S101 - the registry's entry
    return asyncio.run(_search(env, search, notify))


async def _search(env: TeamDesign, search: TeamSearch, notify: Callable[[str], None]) -> FoundTeam:
    spec = parse_player(search.executors, env)
    if spec.kind == "human":
        raise ConfigError("executors", ["is 'human'; a search needs thousands of replies"])
    options = ServerOptions(parse_keys(search.keys, [spec]))
    specs = dict.fromkeys(env.roles[1:], spec)
    async with open_players(env, specs, options, notify) as players:
        run = _Run(env, search, players, random.Random(derive_seed("team", search.seed)))
        while run.has_budget():
            await run.generation()
            notify(f"{run.num_episodes} episodes: {run.curve[-1]['graph']}")
    ranked = run.ranked()
    shown = [one.to_json() for one in ranked[:NUM_SHOWN]]
    return FoundTeam(ranked[0].graph, run.num_episodes, run.num_tokens, run.curve, shown)


@dataclass(slots=True)
class _Run:
    """A search under way."""

    env: TeamDesign
    search: TeamSearch
    players: Mapping[str, Player]
    rng: random.Random
    records: dict[TeamGraph, Record] = field(default_factory=dict)
    curve: list[dict[str, Any]] = field(default_factory=list)
    num_episodes: int = 0
    num_tokens: int = 0

    def has_budget(self) -> bool:
        """Whether another generation may start."""
        limit = self.search.max_tokens
        return self.num_episodes < self.search.num_episodes and (
            limit is None or self.num_tokens < limit
        )

    def ranked(self) -> list[Record]:
        """Evaluated graphs, best first."""
        return sorted(self.records.values(), key=lambda one: -one.rank)

    async def generation(self) -> None:
        """Evaluate the best graphs and changed ones on the next tasks, concurrently."""
        tasks, left = self._next_tasks(), self.search.num_episodes - self.num_episodes
        shares: list[tuple[TeamGraph, int]] = []
        for graph in self._population():
            shares.append((graph, min(len(tasks), left)))
            left -= shares[-1][1]
        runs = [self._episodes(graph, tasks[:number]) for graph, number in shares if number]
        for (graph, _), episodes in zip(shares, await asyncio.gather(*runs), strict=False):
            self._add(graph, episodes)
        best = self.ranked()[0]
        so_far = {"num_episodes": self.num_episodes, "num_tokens": self.num_tokens}
        self.curve.append({**so_far, "num_graphs": len(self.records), **best.to_json()})

    def _population(self) -> list[TeamGraph]:
        size, limits = self.search.population, self.env.limits
        promising = sorted(self.records.values(), key=lambda one: -one.mean)
        parents = [one.graph for one in promising[: max(1, size // 3)]]
        found = dict.fromkeys(parents)
        for _ in range(100 * size):  # few graphs exist if the limits are small
            if len(found) == size:
                break
            explores = not parents or self.rng.random() < 0.2
            graph = pruned(
                random_graph(limits, self.rng)
                if explores
                else mutated(self.rng.choice(parents), limits, self.rng)
            )
            if graph not in self.records:
                found[graph] = None
        return list(found)

    def _next_tasks(self) -> list[Task]:
        tasks = self.env.tasks("train")
        first = len(self.curve) * self.search.episodes_per_graph
        number = min(self.search.episodes_per_graph, len(tasks))
        return [tasks[at % len(tasks)] for at in range(first, first + number)]

    async def _episodes(self, graph: TeamGraph, tasks: Sequence[Task]) -> list[Episode]:
        config = self.env.config.model_copy(update={"design": graph_text(graph)})
        env = TeamDesign(config)
        players = {role: self.players[role] for role in env.roles}
        worker = Worker(env, players, RolloutConfig(type="linear", num_samples=1), RewardConfig())
        episodes: list[Episode] = []
        await worker.run(
            tasks, derive_seed("team_search", self.search.seed, len(self.curve)), episodes.append
        )
        return episodes

    def _add(self, graph: TeamGraph, episodes: Sequence[Episode]) -> None:
        record = self.records.setdefault(graph, Record(graph))
        for episode in episodes:
            if episode.failure is not None:
                raise SamplerError(f"an episode failed: {episode.failure.reason}")
            record.num_episodes += 1
            record.total += _return_of(episode, self.env.config.turn_cost)
            self.num_tokens += episode.num_tokens
        self.num_episodes += len(episodes)


def _return_of(episode: Episode, turn_cost: float) -> float:
    """The team's reward minus the cost of the turns: what a designer would receive."""
    team = [step.rewards.team for step in episode.steps]
    success = sum(reward.value for reward in team if isinstance(reward, Scored))
    return success - turn_cost * len(episode.turns)
