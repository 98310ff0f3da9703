"""The rounds of a match: a model plays every role equally often against one opponent.

Each task is played from every role before the next one, so the first move and the deal favor
neither side.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.evaluation.match.logs import LoggedSampler, Logs
from pettingllms.evaluation.match.tally import Outcome, Row, outcome_of
from pettingllms.evaluation.players import Env, PlayerSpec, ServerOptions, open_players
from pettingllms.rollouts import Player, Worker
from pettingllms.types import Episode, Task


@dataclass(frozen=True, slots=True)
class Limits:
    """Number of rounds, and limits per game."""

    rounds: int = 10
    seed: int = 0
    concurrent: int = 8
    max_tokens: int = 512
    seconds: float = 120.0

    def rollout(self) -> RolloutConfig:
        """The limits as a rollout config."""
        return RolloutConfig(
            type="linear",
            num_samples=1,
            max_concurrent=self.concurrent,
            max_reply_tokens=self.max_tokens,
            sampler_timeout=self.seconds,
        )


@dataclass(frozen=True, slots=True)
class MatchGame:
    """One finished game of the model."""

    number: int
    """Round number, from 1."""
    role: str
    """The model's role."""
    episode: Episode

    @property
    def outcome(self) -> Outcome:
        """The result for the model."""
        return outcome_of(self.episode, self.role)

    @property
    def num_illegal(self) -> int:
        """Number of illegal replies by the model."""
        episode = self.episode
        steps = (episode.steps[at] for at in episode.main_branch())
        illegal = (s for s in steps if s.metrics.get("illegal"))
        return sum(any(episode.turns[t].role == self.role for t in s.turns) for s in illegal)

    def reason(self) -> str:
        """Why the game is unfinished; empty if it finished."""
        if limit := self.episode.limit:
            return f"limit: {limit}"
        failure = self.episode.failure
        return "" if failure is None else f"{failure.owner}: {failure.reason}"


@dataclass(frozen=True, slots=True)
class Match:
    """A model, its opponent, and the roles that the model plays in turn."""

    env: Env
    model: PlayerSpec
    against: PlayerSpec
    roles: Sequence[str]
    limits: Limits

    def row(self, role: str) -> Row:
        """The tally row of a game in which the model played this role."""
        return Row(self.env.id, role, self.against.name)

    def opponent_rows(self, role: str) -> Iterator[Row]:
        """The tally rows of the same game for an opponent that is also a model."""
        others = (other for other in self.env.roles if other != role)
        return (Row(self.env.id, other, self.model.name) for other in others)


async def play_match(
    match: Match,
    options: ServerOptions,
    logs: Logs,
    notify: Callable[[str], None],
    deliver: Callable[[MatchGame], None],
) -> list[MatchGame]:
    """Play every round; `deliver` gets each game as it ends."""
    found: list[MatchGame] = []
    model_specs = dict.fromkeys(match.roles, match.model)
    opponent_specs = dict.fromkeys(match.env.roles, match.against)
    async with (
        open_players(match.env, model_specs, options, notify) as model_players,
        open_players(match.env, opponent_specs, options, notify) as opponents,
    ):
        for role in match.roles:
            rounds = dict(rounds_of(match, role))
            assigned = {**opponents, role: model_players[role]}
            players = {at: _logged(player, logs) for at, player in assigned.items()}
            worker = Worker(match.env, players, match.limits.rollout(), RewardConfig())
            numbers = {task.id: number for number, task in rounds.items()}

            def end(
                episode: Episode, role: str = role, numbers: Mapping[str, int] = numbers
            ) -> None:
                found.append(MatchGame(numbers[episode.task.id], role, episode))
                deliver(found[-1])

            await worker.run(rounds.values(), match.limits.seed, end)
    return sorted(found, key=lambda game: game.number)


def rounds_of(match: Match, role: str) -> Iterator[tuple[int, Task]]:
    """Number and task of each round in which the model plays this role.

    Once the test tasks are used up they repeat under other ids, and so with other random seeds.
    """
    tasks = match.env.tasks("test")
    first = match.roles.index(role)
    for number in range(first, match.limits.rounds, len(match.roles)):
        again, at = divmod(number // len(match.roles), len(tasks))
        task = tasks[at]
        yield number + 1, replace(task, id=f"{task.id}+{again}") if again else task


def _logged(player: Player, logs: Logs) -> Player:
    """Log the exchanges of a model; scripted players are returned unchanged."""
    if player.reads_state:
        return player
    return replace(
        player, sampler=LoggedSampler(player.sampler, player.renderer, player.policy, logs)
    )
