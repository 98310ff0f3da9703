"""Play a tournament: every pair meets in all role assignments, concurrently on one event loop."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from pettingllms.cluster.inference_team import inference_team
from pettingllms.config import (
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
)
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError
from pettingllms.evaluation.players import ServerOptions, require_image_support, server_player
from pettingllms.evaluation.tournament.roster import TournamentEntry
from pettingllms.league.payoff import Assignment, duel, game_result
from pettingllms.league.standings import Game, Standings, standings
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.types import Episode, Task

Players = Mapping[str, Player]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two players and their task, which they play once per role assignment."""

    task: Task
    round: int
    player: str
    opponent: str


@dataclass(frozen=True, slots=True)
class Tournament:
    """Environment, entries and number of rounds."""

    env: Environment[Any, Any]
    entries: Sequence[TournamentEntry]
    num_rounds: int = 10
    """In each round every pair plays one task in every role assignment."""
    seed: int = 0
    temperature: float | None = None
    """Overrides every policy's temperature; 0 is greedy."""

    @property
    def num_games(self) -> int:
        """Number of games in all rounds."""
        num_pairs = len(self.entries) * (len(self.entries) - 1) // 2
        return num_pairs * self.num_rounds * len(self.env.roles)

    def pairings(self) -> Iterator[Pairing]:
        """One pairing per pair and round."""
        tasks = self.env.tasks("test")
        pairs = list(itertools.combinations([one.name for one in self.entries], 2))
        for number in range(self.num_rounds):
            task = tasks[number % len(tasks)]
            for at, (one, other) in enumerate(pairs):
                yield Pairing(replace(task, id=f"{number}/{at}"), number, one, other)


def run_tournament(
    tournament: Tournament,
    notify: Callable[[str], None],
    progress: Callable[[int], None] = lambda _: None,
) -> Standings:
    """Play all games and rate the players. Engines start only for players that need one."""
    if len(tournament.env.roles) < 2:
        raise ConfigError(
            tournament.env.id, ["has one role; a tournament needs an environment with at least two"]
        )
    games = asyncio.run(_play_all(tournament, notify, progress))
    return standings([one.name for one in tournament.entries], games, tournament.seed)


async def _play_all(
    tournament: Tournament, notify: Callable[[str], None], progress: Callable[[int], None]
) -> list[Game]:
    base = next((one.run for one in tournament.entries if one.run), None)
    rollout = RolloutConfig() if base is None else base.rollout
    async with AsyncExitStack() as stack:
        players = await _players(tournament, base, notify, stack)
        return await _games(tournament, players, rollout.linear(1), progress)


async def _games(
    tournament: Tournament,
    players: Players,
    rollout: RolloutConfig,
    progress: Callable[[int], None],
) -> list[Game]:
    """All role assignments at once. Games of one task share their random seed across players."""
    env, roles = tournament.env, tournament.env.roles
    pairings = {one.task.id: one for one in tournament.pairings()}
    tasks = [one.task for one in pairings.values()]
    games: list[Game] = []

    async def play(turn: int) -> None:
        assignments: dict[str, Assignment] = {
            id_: duel(roles, one.player, one.opponent, turn) for id_, one in pairings.items()
        }

        def end(episode: Episode) -> None:
            pairing = pairings[episode.task.id]
            names = (pairing.player, pairing.opponent)
            result = game_result(episode, assignments[episode.task.id], *names)
            games.append(Game(pairing.round, *names, roles[turn], result))
            progress(len(games))

        others = {
            id_: {r: players[n] for r, n in some.items()} for id_, some in assignments.items()
        }
        worker = Worker(env, dict.fromkeys(roles, next(iter(players.values()))), rollout,
                        RewardConfig(), others)  # fmt: skip
        await worker.run(tasks, tournament.seed, end)

    await asyncio.gather(*(play(turn) for turn in range(len(roles))))
    return games


async def _players(
    tournament: Tournament,
    base: RunConfig | None,
    notify: Callable[[str], None],
    stack: AsyncExitStack,
) -> dict[str, Player]:
    """One player per entry; the stack closes connections and engines."""
    players = {}
    for one in tournament.entries:
        if one.spec.kind == "player":
            players[one.name] = scripted_player(tournament.env, one.spec.name, one.name)
        elif one.spec.kind == "server":
            options = ServerOptions({one.spec.url: one.key})
            if tournament.temperature is not None:
                options = replace(options, temperature=tournament.temperature)
            players[one.name] = replace(server_player(stack, one.spec, options), policy=one.name)
    if base is not None:
        players |= await _served(tournament, base, notify, stack)
    return {one.name: players[one.name] for one in tournament.entries}


async def _served(
    tournament: Tournament, base: RunConfig, notify: Callable[[str], None], stack: AsyncExitStack
) -> dict[str, Player]:
    """Players that run on an engine, under names that are valid folder names."""
    served = {f"entry{at}": c for at, c in enumerate(tournament.entries) if c.run}
    for one in served.values():
        if tournament.env.image_roles and one.policy is not None:
            require_image_support(tournament.env, one.name, one.policy)
    weights = {name: one.files for name, one in served.items()}
    playing = inference_team(_config(base, tournament.env, served), weights, notify)
    team = await stack.enter_async_context(playing)
    return {
        one.name: team.player(tournament.env, name, tournament.temperature, frozenset())
        for name, one in served.items()
    }


def _config(
    base: RunConfig, env: Environment[Any, Any], served: Mapping[str, TournamentEntry]
) -> RunConfig:
    """A config for all served entries, with the engine settings of the first one's run. Each entry
    is a separate role here so that it gets a model; assignments map them to the real roles."""
    return base.model_copy(
        update={
            "env": env.config,
            "policies": {name: one.policy for name, one in served.items()},
            "roles": {name: name for name in served},
            "critic": None,
            "train": TrainConfig(),
            "league": None,
            "curriculum": None,
            "judge": None,
            "co_players": None,
        }
    )
