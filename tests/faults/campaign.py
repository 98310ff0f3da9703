"""Real runs with faults injected into them, and what became of each.

A run trains a tiny model on Ray, with the engine in plain PyTorch, two ranks and a rollout worker.
Its driver injects the faults itself (injector.py), so each happens in a known phase of a known
step; the seed chooses which. Afterwards the run must equal one without faults: metrics, episodes,
and the hashes of all weights and optimizer states.
"""

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import running
from running import Config, config_of, metrics_of, write_config

from pettingllms.types import read_episodes
from pettingllms.types.episode_files import episode_files, step_of

HERE = Path(__file__).parent
RUN_SECONDS = 1500.0
FIRST, EVERY = 2, 2
"""Step of the first fault, and steps from one to the next."""
ANY = ("sampling", "learning", "publishing", "saving")
"""Phases of a step, in order."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault, and what a run must make of it."""

    name: str
    what: str
    """What is done, for the table."""
    inject: str
    """The function of injections.py."""
    told: str
    """Pattern in what the run says; empty: it has nothing to say."""
    options: Mapping[str, Any] = field(default_factory=dict)
    phases: tuple[str, ...] = ANY
    ends: bool = False
    """Whether it ends the program, which then has to be resumed."""
    between: Callable[["Run"], None] = lambda _: None
    """Called before the run is resumed."""


@dataclass(frozen=True)
class Row:
    """What became of one fault in a run."""

    fault: str
    seed: int
    where: str
    """Phase and step of the fault."""
    outcome: str
    message: str
    seconds: float
    """From the fault to the end of the next step, new starts of the program included."""
    lost: int
    doubled: int
    equal: bool | None
    """Whether metrics and weights equal those of an undisturbed run; None: they cannot."""


@dataclass(frozen=True)
class Planned:
    """A fault at its place in a run."""

    fault: Fault
    step: int
    phase: str
    delay: float

    def as_json(self) -> dict[str, Any]:
        own = {"name": self.fault.name, "inject": self.fault.inject}
        own |= {"options": dict(self.fault.options)}
        return own | {"step": self.step, "phase": self.phase, "delay": self.delay}


def planned(faults: Sequence[Fault], seed: int, delay: float = 0.3) -> list[Planned]:
    """Faults in the order of their steps; the seed decides on phases and moments, and on the order
    of those that end no run."""
    rng = random.Random(f"faults {seed}")
    order = list(faults)
    if not any(fault.ends for fault in faults):
        rng.shuffle(order)
    return [
        Planned(fault, FIRST + EVERY * at, rng.choice(fault.phases), rng.uniform(0.01, delay))
        for at, fault in enumerate(order)
    ]


def num_steps(num_faults: int) -> int:
    """Steps of a run with so many faults."""
    return FIRST + EVERY * num_faults


def base_config(model: Path, server: str, seed: int, steps: int, **sections: Any) -> Config:
    """The configuration of a run without its faults."""
    config = config_of(
        {
            "p": {"kind": "full", "model": str(model), "lr": 1e-3},
            "served": {"kind": "api", "url": server, "model": "tiny/model"},
        },
        {"role0": "p", "role1": "served"},
        seed=seed,
        rollout={"num_workers": 1, "num_tasks": 4, "num_samples": 4},
        inference={"engine": "torch", "engine_timeout": 30},
        learner={"num_ranks": 2},
        cluster={"device": "cpu", "learner_timeout": 40},
        train={"num_steps": steps},
    )
    for name, values in sections.items():
        config[name] = {**config.get(name, {}), **values}
    return config


class Run:
    """A run of the real program in a folder, with the plan of its faults."""

    def __init__(
        self, folder: Path, config: Config, plan: Sequence[Planned] = (), out: Path | None = None
    ) -> None:
        """`out`: the run folder, if it is on another disk."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.out, self.plan = folder, out or folder / "run", plan
        self._events = folder / "events.jsonl"
        config = {**config, "log": {"callbacks": [f"{HERE / 'injector.py'}:Injector"]}}
        self.config = write_config(folder / "config.toml", config)
        faults = [one.as_json() for one in plan]
        given = {"faults": faults, "events": str(self._events), "run": str(self.out)}
        self.variables = {"PETTINGLLMS_FAULTS": json.dumps(given), "PETTINGLLMS_TRACEBACK": ""}
        self.first_on_path = ""
        """A folder that Python looks for modules in before all others."""
        self.num_programs = 0

    def go(self, seconds: float = RUN_SECONDS) -> int:
        """Run `pettingllms train`, or `resume` once there is a run; the exit code."""
        self.num_programs += 1
        is_new = not (self.out / "config.toml").exists()
        command = ["train", self.config, "--out", self.out] if is_new else ["resume", self.out]
        log = self.folder / f"{self.num_programs}.log"
        arguments = ("-m", "pettingllms", *map(str, command))
        paths = filter(None, [self.first_on_path, running.environment()["PYTHONPATH"]])
        own = {**self.variables, "PYTHONPATH": os.pathsep.join(paths)}
        process = running.start(log, *arguments, variables=own)
        try:
            return process.wait(timeout=seconds)
        finally:
            running.kill_all(process.pid)

    def to_its_end(self) -> list[int]:
        """Run it, and again after every fault that ends it; the exit codes."""
        codes = []
        for ending in [one.fault for one in self.plan if one.fault.ends]:
            codes.append(self.go())
            ending.between(self)
        return [*codes, self.go()]

    def said(self, program: int) -> str:
        """What one of its programs wrote."""
        text = (self.folder / f"{program}.log").read_text(errors="replace")
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def events(self, kind: str) -> list[tuple[float, Any]]:
        """Time and content of what its drivers wrote down."""
        found = map(json.loads, self._events.read_text().splitlines())
        return [(one["time"], one["what"]) for one in found if one["kind"] == kind]

    def walls(self) -> list[float]:
        """The wall clock at all events."""
        return [json.loads(line)["wall"] for line in self._events.read_text().splitlines()]

    def recovery(self, fault: str) -> float:
        """Seconds from a fault to the end of the next step."""
        (start,) = (time for time, what in self.events("injected") if what == fault)
        return next(time for time, _ in self.events("step") if time > start) - start

    def killed_in(self) -> Counter[str]:
        """How many faults came in each phase."""
        found: Counter[str] = Counter()
        phase = ""
        for line in map(json.loads, self._events.read_text().splitlines()):
            phase = line["what"] if line["kind"] == "phase" else phase
            found[phase] += line["kind"] == "injected"
        return +found

    def rows(self, seed: int, undisturbed: Path | None) -> list[Row]:
        """What became of its faults. All must have been injected, and all their programs over."""
        own = episodes_of(self.out)
        expected = own if undisturbed is None else episodes_of(undisturbed)
        equal = None if undisturbed is None else is_equal(self.out, undisturbed)
        lost, doubled = sum((expected - own).values()), sum((own - expected).values())
        rows, program = [], 1
        for one in self.plan:
            fault = one.fault
            text = self.said(program)
            if fault.ends:
                program += 1
                text += self.said(program)
            found = re.search(fault.told, text, re.DOTALL) if fault.told else None
            assert found or not fault.told, f"nothing like '{fault.told}' in\n{text[-3000:]}"
            where = f"{one.phase}, step {one.step}"
            outcome = "stopped, resumed" if fault.ends else "continued"
            message = found[0] if found else ""
            seconds = self.recovery(fault.name)
            rows.append(
                Row(fault.name, seed, where, outcome, message, seconds, lost, doubled, equal)
            )
        return rows


def is_equal(run: Path, undisturbed: Path) -> bool:
    """Whether two runs measured the same and have the same weights and optimizer states."""
    return numbers(run) == numbers(undisturbed) and weights(run) == weights(undisturbed)


def weights(run: Path) -> Any:
    """The hashes of all weights and files of the newest checkpoint."""
    newest = max((run / "checkpoints").glob("step-*"))
    manifest = json.loads((newest / "manifest.json").read_text())
    return newest.name, manifest["state"]["weight_hashes"], manifest["files"]


def numbers(run: Path) -> list[dict[str, Any]]:
    """Metrics, without the clock's and without the number of publications."""
    return [
        {k: v for k, v in line.items() if not k.endswith("/version")} for line in metrics_of(run)
    ]


def episodes_of(run: Path) -> Counter[tuple[int, str]]:
    """How often each episode of each step was written."""
    return Counter(
        (step_of(file) or 0, episode.id)
        for file in episode_files(run)
        for episode in read_episodes(file)
    )


def corrupt_newest(run: Run) -> None:
    """Change one byte of the largest file of the newest checkpoint."""
    newest = max((run.out / "checkpoints").glob("step-*"))
    file = max((f for f in newest.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def free_disk(run: Run) -> None:
    """Remove what fills the disk of a run."""
    (run.out.parent / "filler").unlink()


class Table:
    """The rows of all runs so far, in a JSON file and in a page beside it."""

    def __init__(self, page: Path) -> None:
        self._page, self._json = page, page.with_suffix(".json")

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows, in place of earlier ones of the same fault and seed."""
        found = json.loads(self._json.read_text()) if self._json.exists() else []
        new = {(row.fault, row.seed): asdict(row) for row in rows}
        kept = [one for one in found if (one["fault"], one["seed"]) not in new]
        every = sorted([*kept, *new.values()], key=lambda one: (one["fault"], one["seed"]))
        self._json.write_text(json.dumps(every, indent=1) + "\n")
        self._page.write_text(page_of(every))


def page_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """The page of a campaign."""
    kinds, seeds = len({one["fault"] for one in rows}), len({one["seed"] for one in rows})
    how = "pytest -m faults --faults-table tests/faults/RESULTS.md tests/faults"
    columns = ("fault", "seed", "where", "outcome", "seconds", "lost", "doubled", "equal")
    about = (
        f"Written by `{how}`; do not edit. {kinds} kinds of faults, {seeds} seeds, {len(rows)} "
        "faults. Faults with one outcome and seed happened one after another in one run. Seconds "
        "are from the fault to the end of the next step, with new starts of the program. Lost and "
        "doubled are episodes. Equal: metrics, weights and optimizer states are bit for bit those "
        "of a run without faults."
    )
    lines = [
        "# Results of the fault campaign",
        "",
        about,
        "",
        f"| {' | '.join(columns)} |",
        f"|{' --- |' * len(columns)}",
    ]
    for one in rows:
        equal = {True: "yes", False: "NO", None: "does not apply"}[one["equal"]]
        lines.append(
            f"| {one['fault']} | {one['seed']} | {one['where']} | {one['outcome']} | "
            f"{one['seconds']:.1f} | {one['lost']} | {one['doubled']} | {equal} |"
        )
    lines += ["", "## Messages", "", "| fault | what the run said |", "| --- | --- |"]
    said = {one["fault"]: one["message"] for one in rows}
    lines += [
        f"| {fault} | {' '.join(text.split()).replace('|', '/') or 'nothing'} |"
        for fault, text in said.items()
    ]
    return "\n".join(lines) + "\n"
