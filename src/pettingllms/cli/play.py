"""`play`: one episode between people, scripted players, runs and servers."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import typer
from rich.markup import escape
from rich.panel import Panel

from pettingllms.cli.console import console
from pettingllms.cli.envs import env_with
from pettingllms.envs import Environment, StepResult
from pettingllms.envs.base import observation
from pettingllms.envs.toolkit.answers import CLOSE, OPEN
from pettingllms.errors import ConfigError, PettingError, SamplerError, nearest
from pettingllms.evaluation.players import (
    HUMAN,
    PlayerSpec,
    ServerOptions,
    open_players,
    parse_keys,
    parse_player,
    with_model,
)
from pettingllms.rollouts.env_calls import CallFailed, EnvCaller
from pettingllms.rollouts.player import Player, TurnRequest, sample_turns
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Reward, Scored

ENV_SECONDS = 10.0
SHOWN = 400
"""Maximum characters of a reply that are printed."""


@dataclass(frozen=True, slots=True)
class Game:
    """An environment, a task, and who plays each role."""

    env: Environment[Any, Any]
    players: Mapping[str, PlayerSpec]
    task: int
    seed: int
    delay: float
    servers: ServerOptions = field(default_factory=ServerOptions)
    max_tokens: int = 512
    seconds: float = 120.0

    @classmethod
    def of(
        cls,
        env_name: str,
        options: Sequence[str],
        players: Sequence[str],
        watch: str | None,
        task: int,
        seed: int,
        delay: float,
    ) -> "Game":
        """Read who plays which role; by default a person plays the first role."""
        env = env_with(env_name, options)
        chosen = dict.fromkeys(env.roles, watch or "random")
        if not players and watch is None:
            chosen[env.roles[0]] = HUMAN
        problems = []
        for text in players:
            short, equals, player = text.partition("=")
            role = full_role(short, env.roles)
            if not equals or not player:
                problems.append(
                    f"--player {text}: write ROLE=human, ROLE=PLAYER, ROLE=RUN or ROLE=URL"
                )
            elif role is None:
                problems.append(f"--player {text}: no role '{short}'; {nearest(short, env.roles)}")
            else:
                chosen[role] = player
        player_specs = {}
        for role, player in chosen.items():
            try:
                player_specs[role] = parse_player(player, env)
            except ConfigError as error:
                problems += [f"{role}: {problem}" for problem in error.problems]
        if task >= len(env.tasks("train")):
            count = len(env.tasks("train"))
            problems.append(
                f"--task {task}: got an index beyond {count} tasks; give 0 to {count - 1}"
            )
        if problems:
            raise ConfigError(env_name, problems)
        return cls(env, player_specs, task, seed, delay)

    def with_servers(
        self, keys: Sequence[str], temperature: float, max_tokens: int, seconds: float
    ) -> "Game":
        """The same game, with the models of its servers filled in."""
        options = ServerOptions(parse_keys(keys, self.players.values()), temperature)
        players = {
            role: with_model(player_spec, options) for role, player_spec in self.players.items()
        }
        return replace(
            self, players=players, servers=options, max_tokens=max_tokens, seconds=seconds
        )

    @property
    def people(self) -> list[str]:
        """Roles that a person plays."""
        return [role for role, player_spec in self.players.items() if player_spec.kind == HUMAN]


def full_role(short: str, roles: Sequence[str]) -> str | None:
    """The role of that name, or the only one that ends with it: `x` for `player_x`."""
    found = [short] if short in roles else [role for role in roles if role.endswith(f"_{short}")]
    return found[0] if len(found) == 1 else None


def play_game(game: Game) -> None:
    """Play one task to its end, or until a person leaves."""
    try:
        with asyncio.Runner() as runner, EnvCaller(ENV_SECONDS, game.env.blocking) as guard:
            stack = AsyncExitStack()
            try:
                table = open_players(game.env, game.players, game.servers, _notify)
                players = runner.run(stack.enter_async_context(table))
                _Episode(game, runner, guard, players).run()
            finally:
                runner.run(stack.aclose())
    except KeyboardInterrupt:
        console.print("\nYou left the game.")
        raise typer.Exit(130) from None
    except CallFailed as failed:
        raise _EnvironmentError(f"the environment failed: {failed.failure.reason}") from failed


class _EnvironmentError(PettingError):
    """An environment that failed during a game."""


def _notify(text: str) -> None:
    console.print(escape(text))


class _Episode:
    """An episode in progress.

    The event loop runs only while a sampler is asked. While it runs, Ctrl-C would wait for the
    line that a person is typing.
    """

    def __init__(
        self, game: Game, runner: asyncio.Runner, guard: EnvCaller, players: Mapping[str, Player]
    ) -> None:
        self._game = game
        self._env = game.env
        self._runner = runner
        self._guard = guard
        self._players = players
        self._num_steps = 0

    def run(self) -> None:
        """Play to the end."""
        game, env = self._game, self._env
        task = env.tasks("train")[game.task]
        state = self._call("reset", env.reset, task, game.seed)
        console.print(_welcome(game, task.id))
        returns = dict.fromkeys(env.roles, 0.0)
        while roles := env.acting(state):
            replies = {role: self._reply(state, role) for role in roles}
            result: StepResult[Any] = self._call("step", env.step, state, replies)
            self._show(replies, result)
            for role in env.roles:
                returns[role] += _reward(result, role)
            state = result.state
            self._num_steps += 1
        self._show_end(state, returns)

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        return self._runner.run(self._guard.call(what, function, *args))

    def _reply(self, state: Any, role: str) -> str:
        if role in self._game.people:
            return self._typed(state, role)
        question = TurnRequest(
            role=role,
            messages=observation(self._env, state, role),
            state=state,
            task_id="play",
            seed=derive_seed("play", self._game.seed, self._num_steps, role),
            num_samples=1,
            max_tokens=self._game.max_tokens,
            seconds=self._game.seconds,
        )
        with console.status(f"{role} is thinking", spinner="dots"):
            (turn,) = self._runner.run(sample_turns(self._players[role], question))
        if turn.credit.failure is not None:
            who = self._game.players[role].name
            raise SamplerError(f"{role} ({who}) could not reply: {turn.credit.failure.reason}")
        return turn.text

    def _typed(self, state: Any, role: str) -> str:
        """The reply that a person types; one that the rules reject is asked for again."""
        env = self._env
        console.print(Panel(env.draw(state, role), title=f"you are {role}", expand=False))
        while True:
            console.print(f"[dim]{escape(env.hint(state, role))}[/]")
            typed = _line(role)
            if typed == "?":
                for message in observation(env, state, role):
                    console.print(Panel(escape(message.text), title=message.speaker))
                continue
            reply = env.reply_of(typed)
            try:
                refusal = self._call("refusal", env.refusal, state, role, reply)
            except CallFailed as failed:
                refusal = failed.failure.reason
            if refusal is None:
                return reply
            console.print(f"[yellow]Not possible:[/] {escape(refusal)}. Try again.")

    def _show(self, replies: Mapping[str, str], result: StepResult[Any]) -> None:
        """Print what a person may know, or everything if no person plays."""
        game, env = self._game, self._env
        open_game = type(env).redeal is Environment.redeal
        for role, reply in replies.items():
            if not game.people or (open_game and role not in game.people):
                who = escape(game.players[role].name)
                console.print(f"[bold]{role}[/] ({who}): {escape(_one_line(reply))}")
        for role in game.people:
            for level, reward in _levels(result, role):
                if reward != Scored(0.0):
                    after = "" if role in replies else f", after {', '.join(replies)}"
                    console.print(f"  {role}: {level} reward {escape(_shown(reward))}{after}")
        if game.people:
            return
        if env.acting(result.state):
            viewer = next(iter(replies))
            seen = f"as {viewer} sees it"
            console.print(Panel(env.draw(result.state, viewer), title=seen, expand=False))
        time.sleep(game.delay)

    def _show_end(self, state: Any, returns: Mapping[str, float]) -> None:
        env, players = self._env, self._game.players
        for role in self._game.people or env.roles[:1]:
            console.print(Panel(env.draw(state, role), title="the end", expand=False))
        for role in env.roles:
            reached = env.success(state, role)
            outcome = "[green]succeeded[/]" if reached else "did not succeed"
            who = escape(players[role].name)
            console.print(f"[bold]{role}[/] ({who}) {outcome}, return {returns[role]:+.2f}")


def _line(role: str) -> str:
    """A non-empty line that a person typed."""
    while True:
        try:
            typed = console.input(f"[bold]{role}>[/] ").strip()
        except EOFError:
            console.print("\nInput ended before the game was over; use --watch PLAYER to watch.")
            raise typer.Exit(1) from None
        if typed in ("q", "quit"):
            console.print("You left the game.")
            raise typer.Exit(0)
        if typed:
            if not sys.stdin.isatty():
                console.print(escape(typed))
            return typed


def _welcome(game: Game, task_id: str) -> str:
    players = ", ".join(f"{role}: {player_spec.name}" for role, player_spec in game.players.items())
    keys = "\n[dim]? shows the whole prompt, q leaves[/]" if game.people else ""
    return f"[bold]{game.env.id}[/], task {task_id}. {escape(players)}{keys}"


def _one_line(reply: str) -> str:
    """A reply on one line, without tags and control characters."""
    text = " ".join(reply.replace(OPEN, "").replace(CLOSE, "").split())
    shown = "".join(c if c.isprintable() else "�" for c in text)
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"


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


def _reward(result: StepResult[Any], role: str) -> float:
    return sum(r.value for _, r in _levels(result, role) if isinstance(r, Scored))
