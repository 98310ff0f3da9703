"""`rollout` and `score`: collect episodes, and assign credit to recorded ones."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pettingllms.algos import Algorithm, make_algorithm_for
from pettingllms.cli.console import console
from pettingllms.config import RunConfig
from pettingllms.envs import Split, make_env_for
from pettingllms.envs.check_start import check_start
from pettingllms.errors import ConfigError
from pettingllms.runs.folder import CONFIG_FILE
from pettingllms.runs.summary import Summary, alarm, sandbox_alarm
from pettingllms.runs.trust import load_run_config, load_user_config
from pettingllms.training.collect import EPISODES_FILE, collect
from pettingllms.types import Episode, Group, episode_files, read_episodes, write_episodes
from pettingllms.types.episode_files import EPISODES


def run_rollout(
    path: Path, overrides: Sequence[str], out: Path | None, player: str, split: str, force: bool
) -> None:
    """Collect and summarize episodes; exit code 1 if an alarm was raised."""
    if split not in ("train", "test"):
        raise ConfigError("--split", [f"'{split}' is not a split; give train or test"])
    config = load_user_config(path, overrides)
    folder = out or Path("runs") / path.stem
    if (folder / EPISODES_FILE).exists() and not force:
        raise ConfigError(
            str(folder), ["already holds a run; give another folder with --out, or --force"]
        )
    env = make_env_for(config.env)
    env.player(player)
    part = cast("Split", split)
    check_start(env, forks=config.rollout.type != "linear", split=part)
    num_tasks = min(config.rollout.num_tasks, len(env.tasks(part)))
    if num_tasks < config.rollout.num_tasks:
        console.print(
            f"[yellow]{config.env.id} has {num_tasks} {split} tasks, "
            f"fewer than rollout.num_tasks = {config.rollout.num_tasks}.[/]"
        )
    _print_replaced(config, player)
    with _progress() as progress:
        bar = progress.add_task("episodes", total=num_tasks * config.rollout.num_episodes)

        def advance(_: Episode) -> None:
            progress.advance(bar)

        summary = collect(config, folder, player, part, advance)
    _print_summary(summary, config)
    problem = alarm(summary, config) or sandbox_alarm(summary)
    if problem:
        console.print(f"[bold red]ALARM[/] {escape(problem)}")
    console.print(f"Written to [bold]{escape(str(folder / EPISODES_FILE))}[/]")
    if problem:
        raise typer.Exit(1)


def score_episodes(
    path: Path, algo: str | None, config_path: Path | None, out: Path | None
) -> None:
    """Assign credit to recorded episodes as their run would, and print what was compared."""
    if path.is_dir():
        advice = "give an episode file in it, or a step such as RUN/episodes/step-000001"
        raise ConfigError(str(path), [f"is a folder; {advice}"])
    if not episode_files(path):
        raise ConfigError(str(path), ["no such file; `pettingllms rollout` writes one"])
    folder = path.parent.parent if path.parent.name == EPISODES else path.parent
    beside = folder / CONFIG_FILE
    if not (config_path or beside).is_file():
        missing = str(config_path or beside)
        raise ConfigError(missing, ["no config beside the episodes; give --config"])
    config = load_user_config(config_path) if config_path else load_run_config(beside)
    algorithm = make_algorithm_for(config, algo)
    algo = algo or config.algo.type
    episodes = list(read_episodes(path))
    groups = algorithm.assign(episodes)
    sizes = [len(group.members) for group in groups]
    turns = [turn for episode in episodes for turn in episode.turns]
    trained = sum(turn.credit.advantage is not None for turn in turns)
    table = Table(title=f"{algo} on {escape(path.name)}", show_header=False)
    table.add_row("episodes", str(len(episodes)))
    table.add_row("groups", str(len(groups)))
    table.add_row("members per group", f"{statistics.mean(sizes):.1f}" if sizes else "-")
    table.add_row("groups with different rewards", str(sum(_differ(group) for group in groups)))
    table.add_row("turns with an advantage", f"{trained} of {len(turns)}")
    console.print(table)
    if not groups:
        found = config.rollout.type
        kind = f"{config.rollout.replay} replay" if found == "replay" else found
        console.print(
            f"[yellow]No turns could be compared. {algo} reads {_readable(algorithm)} rollouts, "
            f"and these are {kind}. It compares only the reward levels that it reads.[/]"
        )
    if out is not None:
        write_episodes(out, episodes)
        console.print(f"Written to [bold]{escape(str(out))}[/]")


def _readable(algorithm: Algorithm) -> str:
    silent = "silent " if "silence" in algorithm.needs else ""
    return silent + algorithm.rollout_type()


def _differ(group: Group) -> bool:
    return len({member.reward for member in group.members}) > 1


def _print_replaced(config: RunConfig, player: str) -> None:
    replaced = [name for name, policy in config.policies.items() if policy.kind != "scripted"]
    if replaced:
        console.print(
            f"No engine is used: the scripted player '{player}' answers for {', '.join(replaced)}."
        )


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def _print_summary(summary: Summary, config: RunConfig) -> None:
    best = f"best of {config.rollout.num_samples}: " if summary.num_best else ""
    table = Table("role", "policy", "success", f"{best}mean reward", title="By role")
    for role, policy in config.roles.items():
        successes, rewards = summary.successes[role], summary.rewards[role]
        table.add_row(
            role,
            policy,
            f"{statistics.mean(successes):.1%}" if successes else "-",
            f"{statistics.mean(rewards):+.3f}" if rewards else "-",
        )
    console.print(table)
    console.print(
        f"{summary.num_episodes} episodes, {summary.num_turns} turns "
        f"({summary.num_trained_turns} with an advantage, {summary.num_failed_turns} failed), "
        f"{summary.num_tokens} tokens ({summary.num_extra_tokens} of them in continuations)"
    )
