"""Every pair of contestants meets, in all seats, all games at once on one event loop."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from pettingllms.cluster.inference_team import playing_team
from pettingllms.config import (
    CompanyConfig,
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
from pettingllms.evaluation.players import ServerOptions, refuse_blind, server_seat
from pettingllms.evaluation.tournament.roster import Contestant
from pettingllms.league.assignments import Lineup, duel
from pettingllms.league.payoff import game_result
from pettingllms.league.standings import Game, Standings, standings
from pettingllms.rollout import Seat, Worker
from pettingllms.rollout.scripted import scripted_seat
from pettingllms.types import Episode, Task

Seats = Mapping[str, Seat]


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
    contestants: Sequence[Contestant]
    num_rounds: int = 10
    """In a round every pair meets once in each seating, from one start."""
    seed: int = 0
    temperature: float | None = None
    """In place of every policy's own; 0 is greedy."""

    @property
    def num_games(self) -> int:
        """All games of all rounds."""
        num_pairs = len(self.contestants) * (len(self.contestants) - 1) // 2
        return num_pairs * self.num_rounds * len(self.env.roles)

    def matches(self) -> Iterator[Match]:
        """One for each pair and round."""
        tasks = self.env.tasks("test")
        pairs = list(itertools.combinations([one.name for one in self.contestants], 2))
        for number in range(self.num_rounds):
            task = tasks[number % len(tasks)]
            for at, (one, other) in enumerate(pairs):
                yield Match(replace(task, id=f"{number}/{at}"), number, one, other)


def hold(
    tournament: Tournament,
    say: Callable[[str], None],
    progress: Callable[[int], None] = lambda _: None,
) -> Standings:
    """Play all games and rate the players. Engines are started only for players that need one."""
    if len(tournament.env.roles) < 2:
        raise ConfigError(tournament.env.id, ["has one role, so there is nobody to play against"])
    games = asyncio.run(_play(tournament, say, progress))
    return standings([one.name for one in tournament.contestants], games, tournament.seed)


async def _play(
    tournament: Tournament, say: Callable[[str], None], progress: Callable[[int], None]
) -> list[Game]:
    base = next((one.run for one in tournament.contestants if one.run), None)
    rollout = RolloutConfig() if base is None else base.rollout
    async with AsyncExitStack() as stack:
        seats = await _seats(tournament, base, say, stack)
        return await _games(tournament, seats, rollout.linear(1), progress)


async def _games(
    tournament: Tournament, seats: Seats, rollout: RolloutConfig, progress: Callable[[int], None]
) -> list[Game]:
    """All seatings at once. Games of one task with other seats have the same chance in them."""
    env, roles = tournament.env, tournament.env.roles
    matches = {match.task.id: match for match in tournament.matches()}
    tasks = [match.task for match in matches.values()]
    games: list[Game] = []

    async def play(turn: int) -> None:
        lineups: dict[str, Lineup] = {
            id_: duel(roles, match.player, match.opponent, turn) for id_, match in matches.items()
        }

        def end(episode: Episode) -> None:
            match = matches[episode.task.id]
            two = (match.player, match.opponent)
            result = game_result(episode, lineups[episode.task.id], *two)
            games.append(Game(match.round, *two, roles[turn], result))
            progress(len(games))

        others = {id_: {r: seats[n] for r, n in some.items()} for id_, some in lineups.items()}
        worker = Worker(env, dict.fromkeys(roles, next(iter(seats.values()))), rollout,
                        RewardConfig(), others)  # fmt: skip
        await worker.run(tasks, tournament.seed, end)

    await asyncio.gather(*(play(turn) for turn in range(len(roles))))
    return games


async def _seats(
    tournament: Tournament,
    base: RunConfig | None,
    say: Callable[[str], None],
    stack: AsyncExitStack,
) -> dict[str, Seat]:
    """A seat for each contestant; what must be closed goes on the stack."""
    seats = {}
    for one in tournament.contestants:
        if one.entrant.kind == "player":
            seats[one.name] = scripted_seat(tournament.env, one.entrant.name, one.name)
        elif one.entrant.kind == "server":
            options = ServerOptions({one.entrant.url: one.key})
            if tournament.temperature is not None:
                options = replace(options, temperature=tournament.temperature)
            seats[one.name] = replace(server_seat(stack, one.entrant, options), policy=one.name)
    if base is not None:
        seats |= await _served(tournament, base, say, stack)
    return {one.name: seats[one.name] for one in tournament.contestants}


async def _served(
    tournament: Tournament, base: RunConfig, say: Callable[[str], None], stack: AsyncExitStack
) -> dict[str, Seat]:
    """Seats of those that an engine answers for, under names that are folders too."""
    served = {f"contestant{at}": c for at, c in enumerate(tournament.contestants) if c.run}
    for one in served.values():
        if tournament.env.seeing and one.policy is not None:
            refuse_blind(tournament.env, one.name, one.policy)
    weights = {name: one.files for name, one in served.items()}
    playing = playing_team(_config(base, tournament.env, served), weights, say)
    team = await stack.enter_async_context(playing)
    return {
        one.name: team.seat(tournament.env, name, tournament.temperature, frozenset())
        for name, one in served.items()
    }


def _config(
    base: RunConfig, env: Environment[Any, Any], served: Mapping[str, Contestant]
) -> RunConfig:
    """A run of all served contestants on the engines of the first one's run. Each is a role of its
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
            "company": CompanyConfig(),
        }
    )
