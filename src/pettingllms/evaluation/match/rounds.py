"""The rounds of a match: a model in every player equally often, against whoever has the others.

A task is played from each player before the next one is taken, so who moves first, and what was
dealt, favours nobody.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.evaluation.match.logs import LoggedSampler, Logs
from pettingllms.evaluation.match.tally import Outcome, Row, outcome_of
from pettingllms.evaluation.players import Env, PlayerSpec, ServerOptions, open_players
from pettingllms.rollout import Player, Worker
from pettingllms.types import Episode, Task


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is played, and how long anybody may take."""

    rounds: int = 10
    seed: int = 0
    concurrent: int = 8
    max_tokens: int = 512
    seconds: float = 120.0

    def rollout(self) -> RolloutConfig:
        """The same for a worker."""
        return RolloutConfig(
            type="linear",
            num_samples=1,
            max_concurrent=self.concurrent,
            max_reply_tokens=self.max_tokens,
            sampler_timeout=self.seconds,
        )


@dataclass(frozen=True, slots=True)
class Played:
    """One game of the model."""

    number: int
    """Of the round, from 1."""
    role: str
    """The model's."""
    episode: Episode

    @property
    def outcome(self) -> Outcome:
        """How it ended for the model."""
        return outcome_of(self.episode, self.role)

    @property
    def num_refused(self) -> int:
        """Replies of the model that the rules refused."""
        episode = self.episode
        steps = (episode.steps[at] for at in episode.main_branch())
        illegal = (s for s in steps if s.metrics.get("illegal"))
        return sum(any(episode.turns[t].role == self.role for t in s.turns) for s in illegal)

    def reason(self) -> str:
        """Why it is unfinished, if it is."""
        if limit := self.episode.limit:
            return f"limit: {limit}"
        failure = self.episode.failure
        return "" if failure is None else f"{failure.owner}: {failure.reason}"


@dataclass(frozen=True, slots=True)
class Match:
    """A model, its opponent, and the players that the model takes in turn."""

    env: Env
    model: PlayerSpec
    against: PlayerSpec
    roles: Sequence[str]
    limits: Limits

    def row(self, role: str) -> Row:
        """What a game in this player is counted under."""
        return Row(self.env.id, role, self.against.name)

    def rows_of_rival(self, role: str) -> Iterator[Row]:
        """What the same game is counted under by an opponent that is a model too."""
        others = (other for other in self.env.roles if other != role)
        return (Row(self.env.id, other, self.model.name) for other in others)


async def play_match(
    match: Match,
    options: ServerOptions,
    logs: Logs,
    notify: Callable[[str], None],
    deliver: Callable[[Played], None],
) -> list[Played]:
    """Play every round; games are delivered in the order in which they end."""
    found: list[Played] = []
    own = dict.fromkeys(match.roles, match.model)
    others = dict.fromkeys(match.env.roles, match.against)
    async with (
        open_players(match.env, own, options, notify) as at_home,
        open_players(match.env, others, options, notify) as guests,
    ):
        for role in match.roles:
            rounds = dict(rounds_of(match, role))
            table = {**guests, role: at_home[role]}
            players = {at: _logged(player, logs) for at, player in table.items()}
            worker = Worker(match.env, players, match.limits.rollout(), RewardConfig())
            numbers = {task.id: number for number, task in rounds.items()}

            def end(
                episode: Episode, role: str = role, numbers: Mapping[str, int] = numbers
            ) -> None:
                found.append(Played(numbers[episode.task.id], role, episode))
                deliver(found[-1])

            await worker.run(rounds.values(), match.limits.seed, end)
    return sorted(found, key=lambda played: played.number)


def rounds_of(match: Match, role: str) -> Iterator[tuple[int, Task]]:
    """Number and task of each round in which the model has this player.

    Once the test tasks are used up they come again, under other names and so with other chance.
    """
    tasks = match.env.tasks("test")
    first = match.roles.index(role)
    for number in range(first, match.limits.rounds, len(match.roles)):
        again, at = divmod(number // len(match.roles), len(tasks))
        task = tasks[at]
        yield number + 1, replace(task, id=f"{task.id}+{again}") if again else task


def _logged(player: Player, logs: Logs) -> Player:
    """The same player; what a model says in it is logged, what a script says is not."""
    if player.reads_state:
        return player
    return replace(
        player, sampler=LoggedSampler(player.sampler, player.renderer, player.policy, logs)
    )
