"""The payoff matrix: counts of wins, draws and losses between players."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RewardConfig
from pettingllms.types import Episode, Scored, Task

Assignment = Mapping[str, str]
"""Which player answers for each role of a task."""


def duel(roles: Sequence[str], player: str, opponent: str, number: int) -> Assignment:
    """One player in a role that rotates with the number of the game, the opponent in all others."""
    own_role = roles[number % len(roles)]
    return {role: player if role == own_role else opponent for role in roles}


def rotations(roles: Assignment, tasks: Sequence[Task], first: int) -> dict[str, Assignment]:
    """Assignments by task id, rotated by one role from task to task; `first` is the number of
    earlier tasks."""
    return {task.id: rotated(roles, first + at) for at, task in enumerate(tasks)}


def rotated(roles: Assignment, number: int) -> Assignment:
    """The same players, rotated by `number` roles."""
    players = list(roles.values())
    return {role: players[(at - number) % len(players)] for at, role in enumerate(roles)}


WIN, DRAW, LOSS = 1.0, 0.5, 0.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Games of one player against another."""

    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def num_games(self) -> int:
        """Number of games."""
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """Share of games won, a draw counting half; 0.5 without games."""
        return (self.wins + self.draws / 2) / self.num_games if self.num_games else 0.5

    def plus(self, other: "Tally") -> "Tally":
        """The sum of two tallies."""
        return Tally(self.wins + other.wins, self.draws + other.draws, self.losses + other.losses)

    def reversed(self) -> "Tally":
        """The same games from the opponent's side."""
        return Tally(self.losses, self.draws, self.wins)


TALLIES = {WIN: Tally(wins=1), DRAW: Tally(draws=1), LOSS: Tally(losses=1)}


@dataclass(slots=True)
class Payoff:
    """A tally for each ordered pair of players; both directions always agree."""

    rows: dict[str, dict[str, Tally]] = field(default_factory=dict)

    def between(self, player: str, opponent: str) -> Tally:
        """Games of two players, from the first player's side."""
        return self.rows.get(player, {}).get(opponent, Tally())

    def add(self, player: str, opponent: str, result: float) -> None:
        """Add a game; `result` is the first player's: 1, 0.5 or 0."""
        self._add(player, opponent, TALLIES[result])

    def hand_over(self, player: str, to: str) -> None:
        """Move all games of a player to another name."""
        for opponent, tally in self.rows.pop(player, {}).items():
            self.rows[opponent].pop(player)
            self._add(to, opponent, tally)

    def total(self, player: str) -> Tally:
        """A player's games against all opponents."""
        found = Tally()
        for tally in self.rows.get(player, {}).values():
            found = found.plus(tally)
        return found

    def to_json(self) -> dict[str, dict[str, list[int]]]:
        """Plain data for JSON."""
        return {
            player: {other: [t.wins, t.draws, t.losses] for other, t in row.items()}
            for player, row in self.rows.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, Any]]) -> "Payoff":
        """Restore from plain data."""
        return cls({p: {o: Tally(*counts) for o, counts in row.items()} for p, row in data.items()})

    def _add(self, player: str, opponent: str, tally: Tally) -> None:
        for one, other, counts in (player, opponent, tally), (opponent, player, tally.reversed()):
            row = self.rows.setdefault(one, {})
            row[other] = row.get(other, Tally()).plus(counts)


OUTCOME_ONLY = RewardConfig(process=0.0)


def game_result(
    episode: Episode, assignment: Assignment, player: str, opponent: str
) -> float | None:
    """Result of a game for the first player, by the rewards of its outcome; by process rewards only
    if there are no others."""
    mixes = (OUTCOME_ONLY, RewardConfig())
    results = (result_of(episode, assignment, player, opponent, mix) for mix in mixes)
    return next((result for result in results if result is not None), None)


def result_of(
    episode: Episode, assignment: Assignment, player: str, opponent: str, reward: RewardConfig
) -> float | None:
    """Result of a game for the first player, by comparing rewards; None if the game did not end.

    The reward of a player with several roles is their mean.
    """
    total = {}
    for name in (player, opponent):
        roles = [role for role, assigned in assignment.items() if assigned == name]
        rewards = [role_reward(episode, role, reward) for role in roles]
        values = [r.value for r in rewards if isinstance(r, Scored)]
        if not roles or len(values) < len(roles):
            return None
        total[name] = mean(values)
    if total[player] == total[opponent]:
        return DRAW
    return WIN if total[player] > total[opponent] else LOSS
