"""Standings of a set of games: ratings, a payoff matrix, and since when the order is stable.

Ratings are updated game by game, so the order of games matters a little. Games are therefore
processed in rounds, in each of which every pair meets in all roles, in an order given by the seed.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms.league.payoff import Payoff
from pettingllms.league.ratings import Ratings
from pettingllms.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Game:
    """One game between two players, from the first player's side."""

    round: int
    player: str
    opponent: str
    position: str
    """The first player's role; the opponent had all others."""
    result: float | None
    """1, 0.5 or 0; None if the game did not end."""


@dataclass(slots=True)
class Standings:
    """Players, best first, with their results."""

    players: list[str]
    payoff: Payoff = field(default_factory=Payoff)
    ratings: Ratings = field(default_factory=lambda: Ratings(tau=0.0))
    unfinished: dict[str, int] = field(default_factory=dict)
    num_games: int = 0
    settled_after: int = 0
    """Number of games after which the order of players no longer changed."""

    @property
    def verdict(self) -> str:
        """Whether the order is stable, as a sentence."""
        if self.settled_after == self.num_games:
            return "The order still changed in the last round: play more."
        return f"The order is stable since game {self.settled_after:,}."

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per player, as plain data."""
        for name in self.players:
            tally, rating = self.payoff.total(name), self.ratings.of(name)
            yield {
                "player": name,
                "rating": rating.mu,
                "margin": rating.margin,
                "games": tally.num_games,
                "wins": tally.wins,
                "draws": tally.draws,
                "losses": tally.losses,
                "score": tally.score,
                "unfinished": self.unfinished.get(name, 0),
            }

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "players": list(self.rows()),
            "payoff": self.payoff.to_json(),
            "num_games": self.num_games,
            "settled_after": self.settled_after,
        }


def standings(players: Sequence[str], games: Iterable[Game], seed: int) -> Standings:
    """Rate players by their games."""
    found = Standings(list(players))
    for number, some in _rounds(games):
        random.Random(derive_seed(seed, "round", number)).shuffle(some)
        for game in some:
            _add(found, game)
        order = found.ratings.order(players)
        if order != found.players:
            found.players, found.settled_after = order, found.num_games
    return found


def _add(found: Standings, game: Game) -> None:
    found.num_games += 1
    if game.result is None:
        for name in (game.player, game.opponent):
            found.unfinished[name] = found.unfinished.get(name, 0) + 1
        return
    found.payoff.add(game.player, game.opponent, game.result)
    found.ratings.add(game.player, game.opponent, game.result)


def _rounds(games: Iterable[Game]) -> Iterator[tuple[int, list[Game]]]:
    """Games by round, those of a round in an order that does not depend on when they ended."""
    rounds: dict[int, list[Game]] = {}
    for game in games:
        rounds.setdefault(game.round, []).append(game)
    for number in sorted(rounds):
        yield number, sorted(rounds[number], key=lambda g: (g.player, g.opponent, g.position))
