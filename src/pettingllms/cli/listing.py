"""`envs`, `algos` and `check-env`: what there is, and whether it keeps the contract."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from pettingllms.config import apply_overrides, problems_in
from pettingllms.envs import Environment, check_env, make_env
from pettingllms.errors import ConfigError
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS

console = Console()


def list_envs() -> None:
    """A table of the environments with their roles and players."""
    table = Table("environment", "roles", "players", "solo role", "rewards", title="Environments")
    for name in ENVIRONMENTS.names():
        env = make_env(name)
        solo = make_env(name, solo=True)
        pays = "late" if env.late_rewards else "every turn"
        table.add_row(
            f"[bold]{name}[/]",
            ", ".join(env.roles),
            ", ".join(env.players),
            solo.roles[0],
            pays,
        )
    console.print(table)
    console.print("Play one: [bold]pettingllms play tic_tac_toe-v1[/]")


def list_algos() -> None:
    """A table of the algorithms with what they need and their formula."""
    table = Table("algorithm", "rollout", "advantage", title="Algorithms")
    for name in ALGORITHMS.names():
        cls = ALGORITHMS.load(name)
        rollout = "tree" if "forks" in cls.needs else "linear"
        table.add_row(f"[bold]{name}[/]", rollout, cls.__doc__.splitlines()[0])
    console.print(table)


def test_env(name: str, options: Sequence[str], num_episodes: int) -> None:
    """Run `check_env`; a fault is an error that names it."""
    env = env_with(name, options)
    check_env(env, num_episodes)
    console.print(f"[green]ok[/]: {env.id} keeps the environment contract, {num_episodes} plays.")


def env_with(name: str, options: Sequence[str]) -> Environment[Any, Any]:
    """The environment of that name with options given as KEY=VALUE."""
    values: dict[str, Any] = {}
    problems = apply_overrides(values, options)
    if "id" in values:
        problems.append("id: name the environment first, not as an option")
    try:
        if not problems:
            return make_env(name, **values)
    except ValidationError as error:
        problems = problems_in(error)
    raise ConfigError(name, problems)
