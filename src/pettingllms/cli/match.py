"""`match`: games of a model on a server, as a table, logs and a summary."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.cli.envs import env_with
from pettingllms.cli.play import full_role
from pettingllms.errors import ConfigError, nearest
from pettingllms.evaluation.match.logs import Logs, open_logs
from pettingllms.evaluation.match.moves import can_show_moves, moves_of
from pettingllms.evaluation.match.rounds import Limits, Match, MatchGame, play_match
from pettingllms.evaluation.match.tally import (
    OUTCOMES,
    add_to_summary,
    outcome_of,
    read_summary,
    summary_path,
)
from pettingllms.evaluation.players import (
    Env,
    PlayerSpec,
    ServerOptions,
    parse_keys,
    parse_player,
    with_model,
)


def run_match(
    env_name: str,
    env_options: Sequence[str],
    names: tuple[str, str],
    player: str | None,
    limits: Limits,
    folder: Path,
    keys: Sequence[str],
    temperature: float,
) -> None:
    """Play and log games; exit code 1 if no game finished."""
    env = env_with(env_name, env_options)
    model, against = _player_specs(env, *names)
    options = ServerOptions(parse_keys(keys, (model, against)), temperature)
    model, against = with_model(model, options), with_model(against, options)
    match = Match(env, model, against, _roles(env, player), limits)
    for one in (model, against):
        read_summary(summary_path(folder, one.name), one.name)
    with open_logs(folder, list(options.keys.values())) as (logs, paths):
        _write_head(logs, match, options)
        played: list[MatchGame] = []
        try:
            _play(match, options, logs, played)
        except KeyboardInterrupt:
            console.print("\nStopped; finished games are counted.")
            raise typer.Exit(130) from None
        finally:
            _write_end(logs, played)
            summaries = _add_up(folder, match, played)
    _print_table(match, played, logs)
    for path in (*paths, *summaries):
        console.print(f"  [bold]{escape(str(path))}[/]", soft_wrap=True)
    if not any(one.outcome != "unfinished" for one in played):
        console.print(f"[red]No game finished.[/] {escape(played[0].reason())}")
        raise typer.Exit(1)


def _player_specs(env: Env, server: str, against: str) -> tuple[PlayerSpec, PlayerSpec]:
    model, other = parse_player(server, env), parse_player(against, env)
    problems = []
    if model.kind != "server":
        problems.append(f"'{server}' is not the address of a server; write http://HOST:PORT/v1")
    if other.kind == "human":
        problems.append("--against human: `pettingllms play` is for people")
    if problems:
        raise ConfigError("match", problems)
    return model, other


def _roles(env: Env, player: str | None) -> tuple[str, ...]:
    if player is None:
        return env.roles
    role = full_role(player, env.roles)
    if role is None:
        raise ConfigError(f"--role {player}", [f"no role '{player}'; {nearest(player, env.roles)}"])
    return (role,)


def _play(match: Match, options: ServerOptions, logs: Logs, played: list[MatchGame]) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("games", total=match.limits.rounds)

        def deliver(one: MatchGame) -> None:
            played.append(one)
            logs.result(_result_line(one))
            if can_show_moves(match.env):
                logs.game(_result_line(one), moves_of(match.env, one.episode))
            progress.advance(bar)

        def notify(text: str) -> None:
            progress.console.print(escape(text))

        asyncio.run(play_match(match, options, logs, notify, deliver))


def _write_head(logs: Logs, match: Match, options: ServerOptions) -> None:
    limits = match.limits
    logs.result(f"{match.env.id}: {match.model.name} at {match.model.url}")
    where = f" at {match.against.url}" if match.against.url else ""
    logs.result(f"against {match.against.name}{where}, {limits.rounds} rounds, seed {limits.seed}")
    logs.result(
        f"temperature {options.temperature:g}, at most {limits.max_tokens} tokens and "
        f"{limits.seconds:g} s per reply\n"
    )


def _result_line(one: MatchGame) -> str:
    turns = one.episode.main_turns()
    parts = [
        f"round {one.number}",
        one.episode.task.id,
        f"model is {one.role}",
        one.outcome,
        f"{len(turns)} replies",
    ]
    if one.num_illegal:
        parts.append(f"{one.num_illegal} illegal")
    return ", ".join(parts) + (f" ({one.reason()})" if one.reason() else "")


def _write_end(logs: Logs, played: Sequence[MatchGame]) -> None:
    counts = Counter(one.outcome for one in played)
    logs.result("\n" + ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES))
    if logs.num_replies:
        mean = logs.reply_seconds / logs.num_replies
        logs.result(f"{logs.num_replies} replies, {mean:.2f} s each; {logs.num_errors} errors")


def _add_up(folder: Path, match: Match, played: Sequence[MatchGame]) -> list[Path]:
    """Add the games to the summary of the model, and of its opponent if that is a model too."""
    own = summary_path(folder, match.model.name)
    games = [(match.row(one.role), one.outcome) for one in played]
    add_to_summary(own, match.model.name, games)
    if match.against.kind != "server" or match.against.name == match.model.name:
        return [own]
    rival = summary_path(folder, match.against.name)
    theirs = [
        (row, outcome_of(one.episode, row.role))
        for one in played
        for row in match.opponent_rows(one.role)
    ]
    add_to_summary(rival, match.against.name, theirs)
    return [own, rival]


def _print_table(match: Match, played: Sequence[MatchGame], logs: Logs) -> None:
    title = escape(f"{match.env.id}: {match.model.name} against {match.against.name}")
    table = Table("player", *OUTCOMES, "illegal replies", title=title)
    for role in match.roles:
        games = [one for one in played if one.role == role]
        counts = Counter(one.outcome for one in games)
        illegal = sum(one.num_illegal for one in games)
        table.add_row(role, *(str(counts[outcome]) for outcome in OUTCOMES), str(illegal))
    console.print(table)
    if logs.num_errors:
        console.print(f"[yellow]{logs.num_errors} requests failed; see the log.[/]")
