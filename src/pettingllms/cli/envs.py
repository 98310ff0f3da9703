"""`list` and `check-env`: environments and algorithms, and the test of the contract."""

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
from pettingllms.runtime.shipped import shipped


def list_envs() -> None:
    """Print a table of the environments with their roles and players."""
    table = Table(title="Environments")
    table.add_column("environment", no_wrap=True)
    for title in ("roles", "players", "solo role", "rewards"):
        table.add_column(title)
    missing: list[str] = []
    for name in ENVIRONMENTS.names():
        try:
            env, solo = make_env(name), make_env(name, solo=True)
        except PettingError as error:
            missing.append(f"[bold]{name}[/] is not available: {escape(str(error))}")
            continue
        rewards = "late" if env.late_rewards else "every turn"
        table.add_row(
            f"[bold]{name}[/]",
            ", ".join(env.roles),
            ", ".join(env.players),
            solo.roles[0],
            rewards,
        )
    console.print(table)
    for line in missing:
        console.print(line)
    console.print("Play one: [bold]pettingllms play tic_tac_toe-v1[/]")


def list_library_games() -> None:
    """Print the games of libraries: those that random players finish, and the others."""
    from pettingllms.envs.adapters.catalogue import catalogue

    ended = Table(title="Games of libraries that random players finish")
    left = Table(title="Other games")
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
        "can be played. Install a library with the extra of its name, such as "
        r"pettingllms\[openspiel]."
    )


def list_algos() -> None:
    """Print a table of the algorithms with their rollout type and formula."""
    table = Table("algorithm", "rollout", "advantage", title="Algorithms")
    for name in ALGORITHMS.names():
        cls = ALGORITHMS.load(name)
        table.add_row(f"[bold]{name}[/]", cls.rollout_type(), cls.__doc__.splitlines()[0])
    console.print(table)


def list_configs() -> None:
    """Print the configs that ship with the package, with their first comment."""
    folder = shipped("configs")
    table = Table("config", "what it trains", title="Configs")
    for file in sorted(folder.glob("*.toml")):
        first = file.read_text(encoding="utf-8").partition("\n")[0]
        table.add_row(f"[bold]{file.stem}[/]", escape(first.removeprefix("# ")))
    console.print(table)
    console.print("Train one: [bold]pettingllms train NAME[/]. The files are in", end=" ")
    console.print(f"[bold]{escape(str(folder))}[/]", soft_wrap=True)


def check_contract(name: str, options: Sequence[str], num_episodes: int, seconds: float) -> None:
    """Run `check_env` with a time limit, and report where it stopped."""
    env = env_with(name, options)
    try:
        run_with_timeout(seconds, check_env, env, num_episodes)
    except ContractViolation as violation:
        require_no_faults(env, [violation.fault])
    console.print(
        f"[green]ok[/]: {env.id} keeps the environment contract ({num_episodes} episodes)."
    )


def env_with(name: str, options: Sequence[str]) -> Environment[Any, Any]:
    """The environment of that name with options given as KEY=VALUE."""
    values: dict[str, Any] = {}
    problems = apply_overrides(values, options)
    if "id" in values:
        problems.append("id: give the name as ENV, not as an option")
    if problems:
        raise ConfigError(name, problems)
    try:
        return make_env(name, **values)
    except ValidationError as error:
        raise ConfigError(name, problems_in(error)) from error
    except (TypeError, AttributeError) as error:
        raise ConfigError(name, [f"cannot be created: {describe(error)}"]) from error
