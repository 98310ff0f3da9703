"""Skill ratings with their uncertainty, from the `openskill` package.

The model is Plackett-Luce (Weng and Lin, 2011). A rating is a mean and a standard deviation. A game
moves both means by how surprising its result is, and by less the smaller the deviations are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pettingllms.errors import ConfigError

START, SPREAD = 25.0, 25.0 / 3
"""Rating of a new player, on openskill's scale."""
TAU = 25.0 / 300
"""Deviation that each game adds, because players that learn change."""


@dataclass(frozen=True, slots=True)
class Rating:
    """Mean and standard deviation of a player's skill."""

    mu: float = START
    sigma: float = SPREAD

    @property
    def margin(self) -> float:
        """Two standard deviations: about a 95% interval around the mean."""
        return 2 * self.sigma


@dataclass(slots=True)
class Ratings:
    """Ratings by player; new players start at the default."""

    ratings: dict[str, Rating] = field(default_factory=dict)
    tau: float = TAU

    def of(self, player: str) -> Rating:
        """The rating of a player."""
        return self.ratings.get(player, Rating())

    def add(self, player: str, opponent: str, result: float) -> None:
        """Update both ratings with a game; `result` is the first player's: 1, 0.5 or 0."""
        model = _model(self.tau)
        teams = [[_openskill_rating(model, self.of(name))] for name in (player, opponent)]
        (one,), (other,) = model.rate(teams, scores=[result, 1 - result])
        self.ratings[player] = Rating(one.mu, one.sigma)
        self.ratings[opponent] = Rating(other.mu, other.sigma)

    def copy(self, player: str, to: str) -> None:
        """Give another name the rating of a player."""
        self.ratings[to] = self.of(player)

    def order(self, players: Sequence[str]) -> list[str]:
        """Players by rating, best first."""
        return sorted(players, key=lambda name: -self.of(name).mu)

    def to_json(self) -> dict[str, list[float]]:
        """Plain data for JSON, without rounding."""
        return {name: [rating.mu, rating.sigma] for name, rating in self.ratings.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Sequence[float]]) -> "Ratings":
        """Restore from plain data."""
        return cls({name: Rating(mu, sigma) for name, (mu, sigma) in data.items()})


@lru_cache
def _model(tau: float) -> Any:
    try:
        from openskill.models import PlackettLuce
    except ImportError:
        raise ConfigError(
            "league", ["ratings need openskill; pip install 'pettingllms[league]'"]
        ) from None
    return PlackettLuce(tau=tau)


def _openskill_rating(model: Any, rating: Rating) -> Any:
    return model.rating(mu=rating.mu, sigma=rating.sigma)
