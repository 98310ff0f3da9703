"""`play`: a person or scripted players at the terminal, each shown only what its role may see."""

import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from rich.markup import escape
from rich.panel import Panel

from pettingllms.cli.console import console
from pettingllms.cli.listing import env_with
from pettingllms.envs import Environment, StepResult
from pettingllms.envs.answers import CLOSE, OPEN
from pettingllms.errors import ConfigError, nearest
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Reward, Scored

HUMAN = "human"


@dataclass(frozen=True, slots=True)
class Game:
    """An environment, a task, and who plays each role."""

    env: Environment[Any, Any]
    seats: Mapping[str, str]
    task: int
    seed: int
    delay: float

    @classmethod
    def of(
        cls,
        env_name: str,
        options: Sequence[str],
        seats: Sequence[str],
        watch: str | None,
        task: int,
        seed: int,
        delay: float,
    ) -> "Game":
        """Read who sits where; without a word, a person takes the first seat."""
        env = env_with(env_name, options)
        chosen = dict.fromkeys(env.roles, watch or "random")
        if not seats and watch is None:
            chosen[env.roles[0]] = HUMAN
        problems = []
        for text in seats:
            role, equals, player = text.partition("=")
            if not equals:
                problems.append(f"--seat {text}: write ROLE=human or ROLE=PLAYER")
                continue
            if role not in env.roles:
                problems.append(f"--seat {text}: no role '{role}'; {nearest(role, env.roles)}")
            chosen[role] = player
        problems += [
            f"{role}: no player '{player}'; {nearest(player, [HUMAN, *env.players])}"
            for role, player in chosen.items()
            if player != HUMAN and player not in env.players
        ]
        if task >= len(env.tasks("train")):
            problems.append(f"--task {task}: there are {len(env.tasks('train'))} tasks")
        if problems:
            raise ConfigError(env_name, problems)
        return cls(env, chosen, task, seed, delay)

    @property
    def people(self) -> list[str]:
        """Roles that a person plays."""
        return [role for role, player in self.seats.items() if player == HUMAN]


def play_game(game: Game) -> None:
    """Play one task to its end."""
    env = game.env
    task = env.tasks("train")[game.task]
    state = env.reset(task, game.seed)
    rng = random.Random(derive_seed("play", game.seed))
    console.print(_welcome(game, task.id))
    paid = dict.fromkeys(env.roles, 0.0)
    while roles := env.acting(state):
        replies = {role: _reply(game, state, role, rng) for role in roles}
        result = env.step(state, replies)
        _show_step(game, replies, result)
        for role in env.roles:
            paid[role] += _worth(result, role)
        state = result.state
    for role in game.people or env.roles[:1]:
        console.print(Panel(env.draw(state, role), title="the end", expand=False))
    for role in env.roles:
        aim = "[green]reached its aim[/]" if env.success(state, role) else "did not reach its aim"
        console.print(f"[bold]{role}[/] ({game.seats[role]}) {aim}, was paid {paid[role]:+.2f}")


def _welcome(game: Game, task_id: str) -> str:
    seats = ", ".join(f"{role}: {player}" for role, player in game.seats.items())
    keys = "  [dim](? shows the whole prompt, q leaves)[/]" if game.people else ""
    return f"[bold]{game.env.id}[/], task {task_id}. {seats}{keys}"


def _reply(game: Game, state: Any, role: str, rng: random.Random) -> str:
    player = game.seats[role]
    if player != HUMAN:
        return game.env.player(player)(game.env, state, role, rng)
    console.print(Panel(game.env.draw(state, role), title=f"you are {role}", expand=False))
    while True:
        console.print(f"[dim]{escape(game.env.hint(state, role))}[/]")
        try:
            typed = console.input(f"[bold]{role}>[/] ").strip()
        except EOFError:
            console.print("\nInput ended before the game did; use --watch PLAYER to look on.")
            raise typer.Exit(1) from None
        if typed in ("q", "quit"):
            raise typer.Exit(0)
        if typed == "?":
            for message in game.env.observe(state, role):
                console.print(Panel(escape(message.content), title=message.speaker))
        elif typed:
            if not sys.stdin.isatty():
                console.print(escape(typed))
            return game.env.reply_of(typed)


def _show_step(game: Game, replies: Mapping[str, str], result: StepResult[Any]) -> None:
    """To a person only what was paid to it; to an onlooker everything."""
    for role in game.people:
        for level, reward in _levels(result, role):
            if reward != Scored(0.0):
                after = "" if role in replies else f", after {', '.join(replies)}"
                console.print(f"  {role}: {level} reward {escape(_shown(reward))}{after}")
    if game.people:
        return
    for role, reply in replies.items():
        said = escape(reply.replace(OPEN, "").replace(CLOSE, ""))
        console.print(f"[bold]{role}[/] ({game.seats[role]}): {said}")
    if game.env.acting(result.state):
        viewer = next(iter(replies))
        seen = f"as {viewer} sees it"
        console.print(Panel(game.env.draw(result.state, viewer), title=seen, expand=False))
    time.sleep(game.delay)


def _levels(result: StepResult[Any], role: str) -> list[tuple[str, Reward]]:
    rewards = result.rewards
    levels = [
        ("process", rewards.process.get(role)),
        ("agent", rewards.agent.get(role)),
        ("team", rewards.team),
    ]
    return [(level, reward) for level, reward in levels if reward is not None]


def _shown(reward: Reward) -> str:
    return f"failed: {reward.reason}" if isinstance(reward, Failed) else f"{reward.value:+.2f}"


def _worth(result: StepResult[Any], role: str) -> float:
    return sum(r.value for _, r in _levels(result, role) if isinstance(r, Scored))
