"""Every pair of entries meets, in all players, all games at once on one event loop."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from pettingllms.cluster.inference_team import playing_team
from pettingllms.config import (
    CoPlayersConfig,
    CurriculumConfig,
    JudgeConfig,
    LeagueConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
)
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError
from pettingllms.evaluation.players import ServerOptions, require_image_support, server_player
from pettingllms.evaluation.tournament.roster import TournamentEntry
from pettingllms.league.assignments import Assignment, duel
from pettingllms.league.payoff import game_result
from pettingllms.league.standings import Game, Standings, standings
from pettingllms.rollout import Player, Worker
from pettingllms.rollout.scripted import scripted_player
from pettingllms.types import Episode, Task

Seats = Mapping[str, Player]


@dataclass(frozen=True, slots=True)
class Match:
    """Two players and a task of their own, which they play in every seating."""

    task: Task
    round: int
    player: str
    opponent: str


@dataclass(frozen=True, slots=True)
class Tournament:
    """What is played, by whom, and how often."""

    env: Environment[Any, Any]
    entries: Sequence[TournamentEntry]
    num_rounds: int = 10
    """In a round every pair meets once in each seating, from one start."""
    seed: int = 0
    temperature: float | None = None
    """In place of every policy's own; 0 is greedy."""

    @property
    def num_games(self) -> int:
        """All games of all rounds."""
        num_pairs = len(self.entries) * (len(self.entries) - 1) // 2
        return num_pairs * self.num_rounds * len(self.env.roles)

    def matches(self) -> Iterator[Match]:
        """One for each pair and round."""
        tasks = self.env.tasks("test")
        pairs = list(itertools.combinations([one.name for one in self.entries], 2))
        for number in range(self.num_rounds):
            task = tasks[number % len(tasks)]
            for at, (one, other) in enumerate(pairs):
                yield Match(replace(task, id=f"{number}/{at}"), number, one, other)


def hold(
    tournament: Tournament,
    notify: Callable[[str], None],
    progress: Callable[[int], None] = lambda _: None,
) -> Standings:
    """Play all games and rate the players. Engines are started only for players that need one."""
    if len(tournament.env.roles) < 2:
        raise ConfigError(tournament.env.id, ["has one role, so there is nobody to play against"])
    games = asyncio.run(_play(tournament, notify, progress))
    return standings([one.name for one in tournament.entries], games, tournament.seed)


async def _play(
    tournament: Tournament, notify: Callable[[str], None], progress: Callable[[int], None]
) -> list[Game]:
    base = next((one.run for one in tournament.entries if one.run), None)
    rollout = RolloutConfig() if base is None else base.rollout
    async with AsyncExitStack() as stack:
        players = await _players(tournament, base, notify, stack)
        return await _games(tournament, players, rollout.linear(1), progress)


async def _games(
    tournament: Tournament, players: Seats, rollout: RolloutConfig, progress: Callable[[int], None]
) -> list[Game]:
    """All seatings at once. Games of one task with other players have the same chance in them."""
    env, roles = tournament.env, tournament.env.roles
    matches = {match.task.id: match for match in tournament.matches()}
    tasks = [match.task for match in matches.values()]
    games: list[Game] = []

    async def play(turn: int) -> None:
        assignments: dict[str, Assignment] = {
            id_: duel(roles, match.player, match.opponent, turn) for id_, match in matches.items()
        }

        def end(episode: Episode) -> None:
            match = matches[episode.task.id]
            two = (match.player, match.opponent)
            result = game_result(episode, assignments[episode.task.id], *two)
            games.append(Game(match.round, *two, roles[turn], result))
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
    """A player for each entry; what must be closed goes on the stack."""
    players = {}
    for one in tournament.entries:
        if one.player_spec.kind == "player":
            players[one.name] = scripted_player(tournament.env, one.player_spec.name, one.name)
        elif one.player_spec.kind == "server":
            options = ServerOptions({one.player_spec.url: one.key})
            if tournament.temperature is not None:
                options = replace(options, temperature=tournament.temperature)
            players[one.name] = replace(
                server_player(stack, one.player_spec, options), policy=one.name
            )
    if base is not None:
        players |= await _served(tournament, base, notify, stack)
    return {one.name: players[one.name] for one in tournament.entries}


async def _served(
    tournament: Tournament, base: RunConfig, notify: Callable[[str], None], stack: AsyncExitStack
) -> dict[str, Player]:
    """Seats of those that an engine answers for, under names that are folders too."""
    served = {f"entry{at}": c for at, c in enumerate(tournament.entries) if c.run}
    for one in served.values():
        if tournament.env.image_roles and one.policy is not None:
            require_image_support(tournament.env, one.name, one.policy)
    weights = {name: one.files for name, one in served.items()}
    playing = playing_team(_config(base, tournament.env, served), weights, notify)
    team = await stack.enter_async_context(playing)
    return {
        one.name: team.player(tournament.env, name, tournament.temperature, frozenset())
        for name, one in served.items()
    }


def _config(
    base: RunConfig, env: Environment[Any, Any], served: Mapping[str, TournamentEntry]
) -> RunConfig:
    """A run of all served entries on the engines of the first one's run. Each is a role of its
    own, so that it gets a model; the environment's roles are taken by turns."""
    return base.model_copy(
        update={
            "env": env.config,
            "policies": {name: one.policy for name, one in served.items()},
            "roles": {name: name for name in served},
            "critic": None,
            "train": TrainConfig(),
            "league": LeagueConfig(),
            "curriculum": CurriculumConfig(),
            "judge": JudgeConfig(),
            "co_players": CoPlayersConfig(),
        }
    )
