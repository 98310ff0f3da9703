"""The league of a run: a snapshot pool, a payoff matrix and ratings, which drive matchmaking.

In pure self-play a policy can cycle: it beats its latest version and forgets what beat it before.
So part of its games are against frozen snapshots, and against scripted players. All draws follow
from the run's seed, so a resumed run meets the same opponents.

The learner changes all the time. Its row of the matrix has the games since its last snapshot. Each
snapshot takes over the row, so that `shared@20` has the games of steps 11 to 20.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pettingllms.algos.credit import mean
from pettingllms.config import RewardConfig
from pettingllms.config.co_players import SCRIPT
from pettingllms.config.league import LeagueConfig
from pettingllms.league.payoff import Assignment, Payoff, duel, result_of
from pettingllms.league.pool import Snapshot, draw, thinned
from pettingllms.league.ratings import Ratings
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Task

KINDS = ("snapshots", "anchors", "exploiters", "self")


@dataclass(slots=True)
class League:
    """The state of a league, and its matchmaking."""

    config: LeagueConfig
    learner: str
    """The policy that plays every role."""
    roles: tuple[str, ...]
    seed: int
    pool: list[Snapshot] = field(default_factory=list)
    """The oldest first."""
    payoff: Payoff = field(default_factory=Payoff)
    ratings: Ratings = field(default_factory=Ratings)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """Tasks of each kind so far; they determine the kinds and roles of the next ones."""

    @property
    def members(self) -> tuple[str, ...]:
        """Policies whose snapshots are taken."""
        return (self.learner, *self.config.exploiters)

    def assignments(self, step: int, tasks: Sequence[Task]) -> dict[str, Assignment]:
        """Assignments of a step, by task id; tasks of self-play have no entry."""
        opponents = self._drawn(step)
        counts = dict(self.counts)
        found: dict[str, Assignment] = {}
        for task in tasks:
            kind = self._kind(counts)
            if kind != "self":
                turn, role = divmod(counts[kind], len(self.roles))
                names = opponents[kind]
                found[task.id] = duel(self.roles, self.learner, names[turn % len(names)], role)
            counts[kind] += 1
        return found

    def record(
        self,
        tasks: Iterable[Task],
        assignments: Mapping[str, Assignment],
        episodes: Iterable[Episode],
        reward: RewardConfig,
    ) -> dict[str, float]:
        """Record the results of a step; return the learner's scores against its opponents."""
        for task in tasks:
            self.counts[self._kind_of(assignments.get(task.id))] += 1
        scores: dict[str, list[float]] = {}
        for episode in episodes:
            assignment = assignments.get(episode.task.id, {})
            for opponent in set(assignment.values()) - {self.learner}:
                result = result_of(episode, assignment, self.learner, opponent, reward)
                if result is not None:
                    self.payoff.add(self.learner, opponent, result)
                    self.ratings.add(self.learner, opponent, result)
                    kind = self._kind_of(assignment)
                    label = kind if kind == "snapshots" else opponent.removeprefix(SCRIPT)
                    scores.setdefault(label, []).append(result)
        return {f"score_{name}": mean(some) for name, some in scores.items()}

    def is_due(self, step: int) -> bool:
        """Whether snapshots are due after a step."""
        every = self.config.snapshot_every
        return bool(every) and step % every == 0

    def add_snapshot(self, new: Snapshot) -> list[Snapshot]:
        """Add a snapshot to the pool; return those that are removed."""
        self.payoff.hand_over(new.policy, new.name)
        self.ratings.copy(new.policy, new.name)
        before = [*self.pool, new]
        self.pool = thinned(before, self.config.max_snapshots)
        return [snapshot for snapshot in before if snapshot not in self.pool]

    def metrics(self) -> dict[str, float]:
        """Pool size and the learner's rating."""
        rating = self.ratings.of(self.learner)
        return {"size": float(len(self.pool)), "rating": rating.mu, "rating_sigma": rating.sigma}

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, as plain data."""
        return {
            "pool": [asdict(snapshot) for snapshot in self.pool],
            "payoff": self.payoff.to_json(),
            "ratings": self.ratings.to_json(),
            "counts": dict(self.counts),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.pool = [Snapshot(**snapshot) for snapshot in state["pool"]]
        self.payoff = Payoff.from_json(state["payoff"])
        self.ratings = Ratings.from_json(state["ratings"])
        self.counts = dict(state["counts"])

    def _drawn(self, step: int) -> dict[str, list[str]]:
        """Opponents of a step, by kind."""
        snapshots = []
        for number in range(self.config.num_opponents if self.pool else 0):
            rng = random.Random(derive_seed(self.seed, "league", step, number))
            snapshots.append(draw(self.config.rule, self.pool, self.learner, self.payoff, rng).name)
        return {
            "snapshots": snapshots,
            "anchors": [SCRIPT + name for name in self.config.anchors],
            "exploiters": list(self.config.exploiters),
        }

    def _kind(self, counts: Mapping[str, int]) -> str:
        """The kind of the next task: the one furthest below its share."""
        num_tasks = sum(counts.values()) + 1
        behind = {k: share * num_tasks - counts[k] for k, share in self.config.shares.items()}
        return max(KINDS, key=lambda kind: (behind[kind], -KINDS.index(kind)))

    def _kind_of(self, assignment: Assignment | None) -> str:
        if assignment is None:
            return "self"
        (opponent,) = set(assignment.values()) - {self.learner}
        if opponent.startswith(SCRIPT):
            return "anchors"
        return "exploiters" if opponent in self.config.exploiters else "snapshots"


def make_league(config: LeagueConfig, roles: Assignment, seed: int) -> League:
    """The league of a run before its first step."""
    return League(config, next(iter(roles.values())), tuple(roles), seed)
