"""Ratings with their uncertainty: a normal belief about each player's skill.

They come from the `openskill` package (Plackett-Luce; Weng and Lin, 2011). A rating is a mean and a
deviation; a game moves both players' means apart or together by how much it surprised, and less the
surer we are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pettingllms.errors import ConfigError

START, SPREAD = 25.0, 25.0 / 3
"""What is believed of a player that nobody has seen: openskill's own scale."""
MOVING = 25.0 / 300
"""Doubt that every game adds for players that change, so that they are never rated for good."""


@dataclass(frozen=True, slots=True)
class Rating:
    """What is believed of a player."""

    mu: float = START
    sigma: float = SPREAD

    @property
    def margin(self) -> float:
        """Two deviations: the skill is within so much of the mean, in 95 cases of 100."""
        return 2 * self.sigma


@dataclass(slots=True)
class Ratings:
    """Ratings by player; one that is not known yet is at the start."""

    ratings: dict[str, Rating] = field(default_factory=dict)
    moving: float = MOVING

    def of(self, player: str) -> Rating:
        """What is believed of this one."""
        return self.ratings.get(player, Rating())

    def add(self, player: str, opponent: str, result: float) -> None:
        """Learn from one game; `result` is the first player's: 1, 0.5 or 0."""
        model = _model(self.moving)
        teams = [[_theirs(model, self.of(name))] for name in (player, opponent)]
        (one,), (other,) = model.rate(teams, scores=[result, 1 - result])
        self.ratings[player] = Rating(one.mu, one.sigma)
        self.ratings[opponent] = Rating(other.mu, other.sigma)

    def copy(self, player: str, to: str) -> None:
        """Let another name begin with what is believed of a player."""
        self.ratings[to] = self.of(player)

    def order(self, players: Sequence[str]) -> list[str]:
        """The best first."""
        return sorted(players, key=lambda name: -self.of(name).mu)

    def to_json(self) -> dict[str, list[float]]:
        """As plain data, to the last bit."""
        return {name: [rating.mu, rating.sigma] for name, rating in self.ratings.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Sequence[float]]) -> "Ratings":
        """Back from plain data."""
        return cls({name: Rating(mu, sigma) for name, (mu, sigma) in data.items()})


@lru_cache
def _model(moving: float) -> Any:
    try:
        from openskill.models import PlackettLuce
    except ImportError:
        raise ConfigError(
            "league", ["ratings need openskill; pip install 'pettingllms[league]'"]
        ) from None
    return PlackettLuce(tau=moving)


def _theirs(model: Any, rating: Rating) -> Any:
    return model.rating(mu=rating.mu, sigma=rating.sigma)
