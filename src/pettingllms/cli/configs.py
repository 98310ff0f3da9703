"""`check` and `show-config`: a configuration before it costs anything."""

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.config import load_config, to_toml


def check_config(path: Path, overrides: Sequence[str]) -> None:
    """Read a configuration; say who plays what."""
    config = load_config(path, overrides)
    table = Table("role", "policy", "kind", "learns")
    trained = config.trained_policies()
    for role, policy in config.roles.items():
        learns = "yes" if policy in trained else "no"
        table.add_row(role, policy, config.policies[policy].kind, learns)
    console.print(
        f"[green]ok[/]: {escape(str(path))} can run: {config.algo.type} on {config.env.id}, "
        f"{config.rollout.type} rollouts."
    )
    console.print(table)


def print_config(path: Path, overrides: Sequence[str]) -> None:
    """Print the resolved configuration; plain TOML where nobody looks."""
    text = to_toml(load_config(path, overrides))
    if console.is_terminal:
        console.print(Syntax(text, "toml", background_color="default"))
    else:
        console.out(text, end="", highlight=False)
