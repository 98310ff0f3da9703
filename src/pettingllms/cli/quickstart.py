"""`quickstart`: create a tiny model, warm-start it with SFT, train it, and show what it learned."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pettingllms.api.calls import free_folder
from pettingllms.cli.console import console
from pettingllms.cli.live import make_display
from pettingllms.cluster.start import shared_ray
from pettingllms.config import RunConfig, load_config
from pettingllms.errors import ConfigError
from pettingllms.experiments.experiment import Model
from pettingllms.experiments.runner import ThisMachine
from pettingllms.policies.files import Saved
from pettingllms.preflight.machine import Finding
from pettingllms.preflight.run import inspect
from pettingllms.runs.folder import RunFolder
from pettingllms.types import Episode, read_episodes

CONFIG = Path(__file__).with_name("quickstart.toml")
MODEL = Model(hidden_size=64, num_layers=4, mlp_size=192, head_dim=16, vocab_size=280, symbols=True)
ROLE = "checker"
"""Acts last, so its success is that of the team."""
NUM_SHOWN = 2
"""Test tasks whose transcripts are shown."""


@dataclass(frozen=True, slots=True)
class Tested:
    """The test tasks as the team played them at one time."""

    success: float
    episodes: list[Episode]


def run_quickstart(out: Path | None, overrides: list[str]) -> Path:
    """Make a tiny model, imitate a noisy player, train, show the result; return the run folder."""
    began = time.monotonic()
    top = (out or free_folder(Path("runs"), "quickstart")).absolute()
    if top.exists() and any(top.iterdir()):
        raise ConfigError(str(top), ["is not empty; give another folder with --out"])
    made = _config(overrides, top / "made")
    with console.status("creating a model of 200,000 parameters with random weights"):
        ThisMachine().make_model(MODEL, [made.env], made.seed, top / "made")
    _require_runnable(made, top)
    with shared_ray(made.cluster):
        before = _warm_start(made, overrides, top)
        run, after = _train(_config(overrides, top / "warm_started"), top)
    _print_transcripts(before, after)
    _print_result(run.path, before, after, time.monotonic() - began)
    return run.path


def _warm_start(config: RunConfig, overrides: list[str], top: Path) -> Tested:
    """Run SFT and test the result."""
    console.print("1. SFT: imitate a noisy scripted player, to learn the format of replies.")
    folder = RunFolder(top / "sft")
    folder.create(config, supervised=True)
    with make_display(config, "sft", console) as display:
        ThisMachine().warm_start(config, folder, top / "warm_started", display)
    started = _config(overrides, top / "warm_started")
    before = test(started, {}, top / "test" / "before.jsonl")
    console.print(
        f"2. Test: the team solves {before.success:.0%} of {len(before.episodes)} test mazes."
    )
    return before


def _train(config: RunConfig, top: Path) -> tuple[RunFolder, Tested]:
    """Train with RL and test the result."""
    console.print("3. RL: train the model as planner and checker with AT-GRPO.")
    run = RunFolder(top / "run")
    run.create(config)
    with make_display(config, "run", console) as display:
        ThisMachine().train(config, run, display)
    return run, test(config, run.newest(_print_dim)[1], top / "test" / "after.jsonl")


def test(config: RunConfig, saved: Saved, out: Path) -> Tested:
    """Play the test tasks with saved weights, or with the initial model."""
    from pettingllms.training.evaluate import evaluate

    with console.status("playing test mazes"):
        score = evaluate(config, saved, _print_dim, out=out).scores[ROLE]
    return Tested(score.avg.value, list(read_episodes(out)))


def _config(overrides: list[str], model: Path) -> RunConfig:
    return load_config(CONFIG, [*overrides, f"policies.shared.model={json.dumps(str(model))}"])


def _require_runnable(config: RunConfig, out: Path) -> None:
    found: list[Finding] = [f for f in inspect(config, out) if f.level == "problem"]
    if found:
        raise ConfigError("quickstart", [f"{f.what}; {f.advice}" for f in found])


def _print_transcripts(before: Tested, after: Tested) -> None:
    """Show some mazes that the team failed before and solves now, side by side."""
    later = {episode.task.id: episode for episode in after.episodes}
    improved = [
        (episode, later[episode.task.id])
        for episode in before.episodes
        if episode.task.id in later and not _solved(episode) and _solved(later[episode.task.id])
    ]
    for first, last in improved[:NUM_SHOWN]:
        table = Table.grid(expand=True, padding=(0, 1))
        table.add_column(ratio=1)
        table.add_column(ratio=1)
        table.add_row(_transcript(first, "before"), _transcript(last, "after"))
        console.print(table)


def _transcript(episode: Episode, when: str) -> RenderableType:
    parts: list[RenderableType] = []
    for at, turn in enumerate(episode.turns):
        if at == 0:
            parts.append(Text(turn.messages[-1].text, style="dim"))
        parts.append(Text(f"{turn.role}: ", style="bold") + Text(turn.text))
    solved = _solved(episode)
    mark = Text("solved", style="green") if solved else Text("not solved", style="red")
    return Panel(Group(*parts, mark), title=f"test maze {when} training", title_align="left")


def _solved(episode: Episode) -> bool:
    return episode.success.get(ROLE, False)


def _print_result(run: Path, before: Tested, after: Tested, seconds: float) -> None:
    console.print(
        f"Test mazes solved: {before.success:.0%} before training, {after.success:.0%} after. "
        f"Total time: {seconds / 60:.1f} minutes."
    )
    console.print("Next:")
    for command, why in (
        (f"pettingllms view {run}", "show curves, episodes and advantages"),
        (f"pettingllms report {run}", "print a one-page report"),
        ("pettingllms init my_project", "start your own environment"),
    ):
        console.print(f"  [bold]{escape(command)}[/]  {why}", highlight=False, soft_wrap=True)


def _print_dim(text: str) -> None:
    console.print(text, style="dim", markup=False, highlight=False)
