"""`export --format inspect|atif`: recorded episodes in the formats of other frameworks."""

from pathlib import Path

from rich.markup import escape

from pettingllms.cli.console import console
from pettingllms.errors import ConfigError
from pettingllms.exchange.atif import write_trajectories
from pettingllms.exchange.inspect_log import write_inspect_logs


def export_episodes(
    run: Path, out: Path, kind: str, policy: str | None, checkpoint: Path | None
) -> None:
    """Write the episodes of a run, or of an episode file, to a folder."""
    if policy is not None or checkpoint is not None:
        raise ConfigError(
            f"--format {kind}", ["exports episodes; leave out --policy and --checkpoint"]
        )
    if kind == "atif":
        count = write_trajectories(run, out)
        console.print(f"Exported {count} trajectories to [bold]{escape(str(out))}[/]")
        return
    files = write_inspect_logs(run, out)
    console.print(f"Exported {len(files)} logs to [bold]{escape(str(out))}[/]", soft_wrap=True)
    console.print(f"Open them with [bold]inspect view --log-dir {escape(str(out))}[/]")
