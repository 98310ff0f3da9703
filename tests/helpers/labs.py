"""An experiment on disk and a machine that only pretends to work, for tests of the whole flow."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plays import linear, rewards

from pettingllms.config import RunConfig
from pettingllms.experiments.experiment import load_experiment
from pettingllms.experiments.plan import ExperimentRequest
from pettingllms.experiments.reproduce import reproduce
from pettingllms.experiments.scoring import Exploitability
from pettingllms.judges.local_verifier import FILES
from pettingllms.types import write_episodes

EXPERIMENT = """
title = "Relays"
question = "Does it learn?"
seeds = [1, 2, 3]

[[warm_starts]]
config = "run.toml"
set = ["policies.policy_a.model={model}", "sft.player=random"]

[[arms]]
name = "untrained"
config = "run.toml"
trained = false

[[arms]]
name = "GRPO"
config = "run.toml"
set = ["train.num_steps=3"]

[[evaluations]]
name = "aims reached"

[[evaluations]]
name = "lost to b"
set = ["eval.num_tasks=8"]
measure = "loss"
role = "a"

[figure]
bars = ["aims reached"]

[quick]
set = ["train.num_steps=2"]
seeds = [7]
evaluations = ["aims reached"]

[[quick.floors]]
arm = "GRPO"
evaluation = "aims reached"
at_least = 0.5
"""
RUN = """
[env]
id = "toys:Relay"
[algo]
type = "grpo"
[policies.policy_a]
kind = "full"
model = "{start}"
[policies.policy_b]
kind = "scripted"
[roles]
a = "policy_a"
b = "policy_b"
[eval]
num_tasks = 10
"""
SKILL = {(False, 1): 1, (False, 2): 2, (False, 3): 3, (True, 1): 4, (True, 2): 6, (True, 3): 8}
"""Plays of ten that are won, by whether anything was trained and by seed."""


def write_experiment(folder: Path, text: str = EXPERIMENT, run: str = RUN) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.toml").write_text(text)
    (folder / "run.toml").write_text(run)
    return folder


def _num_won(trained: bool, seed: int) -> int:
    return SKILL[trained, seed]


class FakeMachine:
    """Does nothing but leave behind what real work would leave."""

    def __init__(self, num_won: Callable[[bool, int], int] | None = None) -> None:
        self.calls: list[str] = []
        self.models: list[str] = []
        """Of policy_a, in every run that was trained or evaluated."""
        self.stop_after: int | None = None
        """Step at which a user presses Ctrl-C."""
        self._num_won = num_won or _num_won

    def make_model(self, model: Any, envs: Any, seed: int, out: Path) -> None:
        self.calls.append(f"model {seed}, {len(envs)} environments")
        self._write(out)

    def warm_start(self, config: RunConfig, folder: Any, out: Path, callback: Any):
        player = config.sft.player if config.sft else None
        self.calls.append(f"warm start {config.seed} by {player}")
        self.models.append(config.policies["policy_a"].model)
        self._write(out)

    def train(self, config: RunConfig, folder: Any, callback: Any) -> None:
        self.calls.append(f"train {config.seed}")
        self.models.append(config.policies["policy_a"].model)
        last = min(config.train.num_steps, self.stop_after or config.train.num_steps)
        with (folder.path / "metrics.jsonl").open("w") as file:
            for step in range(1, last + 1):
                roles = {"a": {"reward": step / 10}}
                metrics = {"roles": roles, "rollout": {"total_tokens": 100.0 * step}}
                callback.on_step_end(step, metrics)
                row = {"step": step, "rollout/total_tokens": 100.0 * step, "time/step": 2.0}
                file.write(json.dumps({**row, "roles/a/reward": step / 10}) + "\n")

    def evaluate(self, config: RunConfig, run: Any, out: Path, notify: Any) -> Exploitability:
        trained = run is not None
        self.calls.append(f"evaluate {config.seed} {'trained' if trained else 'untrained'}")
        self.models.append(config.policies["policy_a"].model)
        episodes = []
        for number in range(config.eval.num_tasks):
            episode = linear(f"task-{number}", 0, ("a", rewards({"a": 1.0})), ("b", rewards()))
            won = number < self._num_won(trained, config.seed)
            episode.success = {"a": won, "b": not won}
            episodes.append(episode)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_episodes(out, episodes)
        return {}

    def train_verifier(self, config: RunConfig, folder: Path, out: Path, notify: Any) -> None:
        self.calls.append(f"verifier {config.seed}")
        self.models.append(config.policies["policy_a"].model)
        report = {"auc": 0.75, "auc_within": None, "accuracy": 0.7, "brier": 0.2, "ece": 0.05}
        (folder / "report.json").write_text(json.dumps({**report, "num_answers": 40}))
        out.mkdir(parents=True)
        for name in FILES:
            (out / name).write_text("{}")

    def export(self, config: RunConfig, run: Any, policy: str, out: Path, notify: Any) -> None:
        self.calls.append(f"export {policy} {config.seed}")
        self._write(out)

    def _write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")


class Lab:
    """One experiment, run as often as one likes."""

    def __init__(self, folder: Path, text: str = EXPERIMENT, run: str = RUN) -> None:
        self.source = write_experiment(folder / "experiments" / "relays", text, run)
        self.out = folder / "out"
        self.machine = FakeMachine()
        self.said: list[str] = []

    def request(self, quick: bool = False) -> ExperimentRequest:
        experiment = load_experiment(self.source)
        floors = experiment.quick.floors if quick else []
        experiment = experiment.smoke_run() if quick else experiment
        command = "pettingllms reproduce relays"
        return ExperimentRequest(experiment, self.source, self.out, command, floors)

    def run(
        self,
        *seeds: int,
        quick: bool = False,
        join: Sequence[Path] = (),
        num_at_once: int = 1,
        arms: Sequence[str] = (),
    ) -> list[str]:
        request = replace(self.request(quick), joined=join)
        seeds = seeds or tuple(request.experiment.seeds)
        return reproduce(request, seeds, self.machine, self.said.append, num_at_once, arms)

    def new_calls(self) -> list[str]:
        calls, self.machine.calls = self.machine.calls, []
        return calls

    @property
    def results(self) -> dict[str, Any]:
        return json.loads((self.out / "results.json").read_text())

    @property
    def table(self) -> str:
        return (self.out / "table.md").read_text()
