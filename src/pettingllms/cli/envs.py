"""`envs`, `algos` and `check-env`: what there is, and whether it keeps the contract."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.config import apply_overrides, problems_in
from pettingllms.envs import Environment, check_env, make_env
from pettingllms.envs.contract_faults import ContractViolation, require_no_faults, run_with_timeout
from pettingllms.errors import ConfigError, PettingError, describe
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS


def list_envs() -> None:
    """A table of the environments with their roles and players."""
    table = Table(title="Environments")
    table.add_column("environment", no_wrap=True)
    for title in ("roles", "players", "solo role", "rewards"):
        table.add_column(title)
    missing: list[str] = []
    for name in ENVIRONMENTS.names():
        try:
            env, solo = make_env(name), make_env(name, solo=True)
        except PettingError as error:
            missing.append(f"[bold]{name}[/] is not here: {escape(str(error))}")
            continue
        pays = "late" if env.late_rewards else "every turn"
        table.add_row(
            f"[bold]{name}[/]",
            ", ".join(env.roles),
            ", ".join(env.players),
            solo.roles[0],
            pays,
        )
    console.print(table)
    for line in missing:
        console.print(line)
    console.print("Play one: [bold]pettingllms play tic_tac_toe-v1[/]")


def list_library_games() -> None:
    """Two tables of the libraries' games: those that random players ended, and the others."""
    from pettingllms.envs.adapters.catalogue import catalogue

    ended = Table(title="Games of libraries that random players played to their end")
    left = Table(title="The others")
    for table, what in ((ended, "steps"), (left, "why")):
        table.add_column("environment", overflow="fold")
        for title in ("roles", what, "forks", "variants"):
            table.add_column(title, justify="right" if title == "steps" else "left")
    for entry in catalogue().values():
        (left if entry.reason else ended).add_row(
            f"[bold]{escape(entry.name)}[/]" if not entry.refused else escape(entry.name),
            str(entry.num_roles or "-"),
            escape(entry.reason or str(entry.num_steps)),
            "-" if entry.refused else "yes" if entry.forks else "no",
            str(len(entry.variants) or ""),
        )
    console.print(ended)
    console.print(left)
    console.print(
        f"{ended.row_count} of {ended.row_count + left.row_count} games. Those in [bold]bold[/] "
        "can be played; a library is installed with the extra of its name, such as "
        r"pettingllms\[openspiel]."
    )


def list_algos() -> None:
    """A table of the algorithms with what they need and their formula."""
    table = Table("algorithm", "rollout", "advantage", title="Algorithms")
    for name in ALGORITHMS.names():
        cls = ALGORITHMS.load(name)
        table.add_row(f"[bold]{name}[/]", cls.rollout_type(), cls.__doc__.splitlines()[0])
    console.print(table)


def check_contract(name: str, options: Sequence[str], num_episodes: int, seconds: float) -> None:
    """Run `check_env`, and say what it was doing if it does not come to an end."""
    env = env_with(name, options)
    try:
        run_with_timeout(seconds, check_env, env, num_episodes)
    except ContractViolation as violation:
        require_no_faults(env, [violation.fault])
    console.print(f"[green]ok[/]: {env.id} keeps the environment contract, {num_episodes} plays.")


def env_with(name: str, options: Sequence[str]) -> Environment[Any, Any]:
    """The environment of that name with options given as KEY=VALUE."""
    values: dict[str, Any] = {}
    problems = apply_overrides(values, options)
    if "id" in values:
        problems.append("id: name the environment first, not as an option")
    if problems:
        raise ConfigError(name, problems)
    try:
        return make_env(name, **values)
    except ValidationError as error:
        raise ConfigError(name, problems_in(error)) from error
    except (TypeError, AttributeError) as error:
        raise ConfigError(name, [f"cannot be made: {describe(error)}"]) from error
