"""Components: optional parts of training, such as a league, a curriculum or an evaluation.

The loop calls the same hooks on each component, so it has no branches for them. A new component is
one file with a subclass of `Component`, and one line in `compose.py`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pettingllms.league import Assignment
from pettingllms.policies.files import Saved
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.ledger import Ledger
from pettingllms.runs.metrics import Metrics
from pettingllms.types import Episode, Task

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a component may use once engines and learners run."""

    team: "Team"
    ledger: Ledger
    saved: Saved
    """Weights of the checkpoint that the run resumes from, by policy and snapshot."""
    num_steps_done: int
    notify: Callable[[str], None]
    log: Callable[[int, Mapping[str, Any]], None]
    """Adds metrics, as nested as `Metrics`, to the last step that was recorded."""


def _no_metrics() -> Metrics:
    return {"roles": {}, "policies": {}, "rollout": {}}


@dataclass(slots=True)
class TrainStep:
    """One step of training in progress. Components read it and add to it."""

    number: int
    seed: int
    num_tasks_done: int
    """Tasks of all earlier steps."""
    num_tokens: int
    """Tokens that policies that learn have sampled in all earlier steps."""
    learning: frozenset[str]
    """Policies that learn in this step."""
    last_saved: int
    """Step of the newest checkpoint."""
    last_good: int
    """Step of the newest checkpoint whose policies showed no sign of collapse; 0: none."""
    callback: Callback
    tasks: list[Task] = field(default_factory=list)
    assignments: Mapping[str, Assignment] = field(default_factory=dict)
    """Players of a task, by its id, where they differ from [roles]."""
    seeds: dict[str, int] = field(default_factory=dict)
    """Seed that a task was sampled with, by its id, where it is not `seed`."""
    episodes: list[Episode] = field(default_factory=list)
    dropped_tokens: int = 0
    """Tokens of policies that learn in groups that were too old to be trained on."""
    metrics: Metrics = field(default_factory=_no_metrics)
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of each phase."""
    pause: str = ""
    """Why the run must pause after this step; empty: it continues."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Announce a phase of the step, and measure how long it takes."""
        self.callback.on_phase(name)
        with self.timed(name):
            yield

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measure how long a part of the step takes, without an announcement."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def add_metrics(self, section: str, values: Mapping[str, float]) -> None:
        """Add metrics under `section/NAME`."""
        metrics = cast("dict[str, Any]", self.metrics)
        metrics[section] = {**metrics.get(section, {}), **values}


class Component:
    """Base class of components. Every hook does nothing; override the ones you need."""

    name = ""
    """Key of the component's state in a checkpoint; empty: it has no state."""

    async def start(self, context: RunContext) -> None:
        """Called once engines and learners have their weights, after `load_state_dict`."""

    def before_step(self, step: TrainStep) -> None:
        """Called before sampling; may set `step.assignments`."""

    async def score_episodes(self, step: TrainStep) -> None:
        """Called after sampling and before credit assignment; may write rewards."""

    async def before_publish(self, step: TrainStep) -> None:
        """Called before new weights replace those that were published last."""

    async def after_step(self, step: TrainStep) -> None:
        """Called once new weights are published; may add metrics or pause the run."""

    async def finish(self) -> None:
        """Called after the last step, unless the run is stopped."""

    async def stop(self) -> None:
        """Called when the run ends, before engines stop."""

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, as plain data for JSON."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
