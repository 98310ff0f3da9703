"""The payoff matrix: who won how often against whom. Counts, so that it says what it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RewardConfig
from pettingllms.league.assignments import Assignment
from pettingllms.types import Episode, Scored

WIN, DRAW, LOSS = 1.0, 0.5, 0.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Games of one player against another."""

    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def num_games(self) -> int:
        """All of them."""
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """Share that was won, a draw half; one half if none was played."""
        return (self.wins + self.draws / 2) / self.num_games if self.num_games else 0.5

    def plus(self, other: "Tally") -> "Tally":
        """Both together."""
        return Tally(self.wins + other.wins, self.draws + other.draws, self.losses + other.losses)

    def turned(self) -> "Tally":
        """The same games, as the other player counts them."""
        return Tally(self.losses, self.draws, self.wins)


TALLIES = {WIN: Tally(wins=1), DRAW: Tally(draws=1), LOSS: Tally(losses=1)}


@dataclass(slots=True)
class Payoff:
    """A tally for each ordered pair of players that have met. Both directions always agree."""

    rows: dict[str, dict[str, Tally]] = field(default_factory=dict)

    def between(self, player: str, opponent: str) -> Tally:
        """Their games, as the first of them counts."""
        return self.rows.get(player, {}).get(opponent, Tally())

    def add(self, player: str, opponent: str, result: float) -> None:
        """One more game; `result` is the first player's: 1, 0.5 or 0."""
        self._add(player, opponent, TALLIES[result])

    def hand_over(self, player: str, to: str) -> None:
        """Give all games of a player to another name, and let it begin anew."""
        for opponent, tally in self.rows.pop(player, {}).items():
            self.rows[opponent].pop(player)
            self._add(to, opponent, tally)

    def total(self, player: str) -> Tally:
        """A player's games against everybody."""
        found = Tally()
        for tally in self.rows.get(player, {}).values():
            found = found.plus(tally)
        return found

    def to_json(self) -> dict[str, dict[str, list[int]]]:
        """As plain data."""
        return {
            player: {other: [t.wins, t.draws, t.losses] for other, t in row.items()}
            for player, row in self.rows.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, Any]]) -> "Payoff":
        """Back from plain data."""
        return cls({p: {o: Tally(*counts) for o, counts in row.items()} for p, row in data.items()})

    def _add(self, player: str, opponent: str, tally: Tally) -> None:
        for one, other, counts in (player, opponent, tally), (opponent, player, tally.turned()):
            row = self.rows.setdefault(one, {})
            row[other] = row.get(other, Tally()).plus(counts)


FINES_ASIDE = RewardConfig(process=0.0)


def game_result(
    episode: Episode, assignment: Assignment, player: str, opponent: str
) -> float | None:
    """How a game between two ended for the first, by what its outcome paid them; by what single
    replies were paid or fined only if nothing else was."""
    mixes = (FINES_ASIDE, RewardConfig())
    results = (result_of(episode, assignment, player, opponent, mix) for mix in mixes)
    return next((result for result in results if result is not None), None)


def result_of(
    episode: Episode, assignment: Assignment, player: str, opponent: str, reward: RewardConfig
) -> float | None:
    """How a game between two ended for the first, by what each was paid; None if it did not end.

    A player in several seats counts by the mean of what they were paid.
    """
    paid = {}
    for name in (player, opponent):
        positions = [role for role, sitting in assignment.items() if sitting == name]
        rewards = [role_reward(episode, role, reward) for role in positions]
        values = [r.value for r in rewards if isinstance(r, Scored)]
        if not positions or len(values) < len(positions):
            return None
        paid[name] = mean(values)
    if paid[player] == paid[opponent]:
        return DRAW
    return WIN if paid[player] > paid[opponent] else LOSS
