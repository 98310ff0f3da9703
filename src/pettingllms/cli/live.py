"""Progress of a run: a live table on a terminal, else one line per step."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pettingllms.algos.credit import mean
from pettingllms.cli.chart import ShareChart
from pettingllms.config import RunConfig
from pettingllms.runs.callbacks import Callback

Clock = Callable[[], float]
Numbers = Mapping[str, float]
HISTORY = 30
"""Steps in a sparkline, and in the estimate of the remaining time."""
MAX_WIDTH = 100
BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"


class Display(Callback):
    """A callback that draws on the screen while it is entered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


def make_display(
    config: RunConfig, run_name: str, console: Console, clock: Clock = time.monotonic
) -> Display:
    """A live table if the console is a terminal that can draw one, else plain lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(config, run_name, console, clock)
    return PlainDisplay(config, console, clock)


class PlainDisplay(Display):
    """One line per step, for logs."""

    def __init__(self, config: RunConfig, console: Console, clock: Clock) -> None:
        self._config = config
        self._console = console
        self._clock = clock
        self._since = clock()

    def __enter__(self) -> Self:
        self._since = self._clock()
        return self

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        since, self._since = self._since, self._clock()
        parts = [f"step {step}/{self._config.train.num_steps}"]
        for role in self._config.roles:
            numbers = metrics.get("roles", {}).get(role, {})
            words = [
                role,
                *_named(numbers, "reward", "{:+.2f}"),
                *_named(numbers, "success", "{:.0%}"),
            ]
            parts.append(" ".join(words))
        if (success := _eval_success(metrics)) is not None:
            parts.append(f"test success {success:.0%}")
        mismatches = [
            p["mismatch"] for p in metrics.get("policies", {}).values() if "mismatch" in p
        ]
        if mismatches:
            parts.append(f"mismatch {_worst(mismatches):.2g}")
        seconds = metrics.get("time", {}).get("step", self._since - since)
        self.on_message("  ".join([*parts, f"{seconds:.1f} s"]))

    def on_message(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveDisplay(Display):
    """A table below the messages, redrawn a few times per second."""

    def __init__(
        self, config: RunConfig, run_name: str, console: Console, clock: Clock = time.monotonic
    ) -> None:
        self._config = config
        self._run_name = run_name
        self._clock = clock
        self._lock = threading.RLock()
        self._live = Live(self, console=console, refresh_per_second=4)
        self._started = clock()
        self._step = 0
        self._metrics: Mapping[str, Any] = {}
        self._phase = "starting"
        self._progress: tuple[int, int] | None = None
        self._ends: deque[float] = deque(maxlen=HISTORY + 1)
        self._rewards: dict[str, deque[float]] = {
            role: deque(maxlen=HISTORY) for role in config.roles
        }
        self._successes: dict[int, float] = {}
        """By step: success in its evaluation, the mean of all roles."""

    def __enter__(self) -> Self:
        self._started = self._clock()
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_phase(self, text: str) -> None:
        with self._lock:
            self._phase, self._progress = text, None

    def on_progress(self, done: int, total: int) -> None:
        with self._lock:
            self._progress = done, total

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        with self._lock:
            self._step, self._metrics = step, metrics
            self._ends.append(self._clock())
            for role, rewards in self._rewards.items():
                rewards.append(metrics.get("roles", {}).get(role, {}).get("reward", math.nan))
            if (success := _eval_success(metrics)) is not None:
                self._successes[step] = success

    def on_message(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def __rich__(self) -> RenderableType:
        with self._lock:
            parts: list[RenderableType] = [self._head(), Text(), self._role_table()]
            if self._config.trained_policies():
                parts += [Text(), self._policy_table()]
            if self._successes:
                title = Text("success in evaluations on test tasks", style="dim")
                chart = ShareChart(list(self._successes), list(self._successes.values()))
                parts += [Text(), title, chart]
            if times := self._metrics.get("time"):
                parts += [Text(), Text(_times(times), style="dim")]
        title = Text(self._run_name, style="bold not dim cyan")
        return Panel(
            Group(*parts), title=title, title_align="left", border_style="dim", width=MAX_WIDTH
        )

    def _head(self) -> Table:
        num_steps = self._config.train.num_steps
        now = self._clock()
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_row(
            Text(f"step {self._step}/{num_steps}", style="bold"),
            ProgressBar(num_steps, self._step),
            f"{_duration(now - self._started)} elapsed, {self._left(now)} left",
        )
        if self._progress is None:
            grid.add_row(Text(self._phase, style="yellow"))
        else:
            done, total = self._progress
            phase = Text(f"{self._phase} {done}/{total}", style="yellow")
            grid.add_row(phase, ProgressBar(total, done, complete_style="yellow"))
        return grid

    def _left(self, now: float) -> str:
        if len(self._ends) < 2:
            return "-"
        pace = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        planned = pace * (self._config.train.num_steps - self._step)
        return _duration(max(0.0, planned - (now - self._ends[-1])))

    def _role_table(self) -> Table:
        table = _table(["role", "policy"], ["reward", "", "success", "tokens", "failed"])
        table.columns[3].no_wrap = False
        limit = self._config.rollout.max_failure_share
        for role, policy in self._config.roles.items():
            numbers = self._metrics.get("roles", {}).get(role, {})
            table.add_row(
                Text(role),
                Text(policy, style="dim"),
                Text(_shown(numbers, "reward", "{:+.3f}"), style="bold"),
                Sparkline(self._rewards[role]),
                _shown(numbers, "success", "{:.0%}"),
                _shown(numbers, "reply_tokens", "{:,.0f}"),
                _bounded(numbers, "failed_share", "{:.1%}", limit),
            )
        return table

    def _policy_table(self) -> Table:
        table = _table(
            ["policy"], ["version", "mismatch", "clipped", "entropy", "grad norm", "tokens/s"]
        )
        trained = self._config.trained_policies()
        for policy in (name for name in self._config.policies if name in trained):
            numbers = self._metrics.get("policies", {}).get(policy, {})
            table.add_row(
                Text(policy),
                _shown(numbers, "version", "{:.0f}"),
                _bounded(numbers, "mismatch", "{:.2g}", self._config.mismatch_bound()),
                _shown(numbers, "clip_share", "{:.1%}"),
                _shown(numbers, "entropy", "{:.3f}"),
                _shown(numbers, "grad_norm", "{:.3g}"),
                _shown(numbers, "tokens_per_second", "{:,.0f}"),
            )
        return table


def _eval_success(metrics: Mapping[str, Any]) -> float | None:
    """Success in the evaluation of a step, the mean of all roles; None without an evaluation."""
    roles = metrics.get("roles", {}).values()
    found = [numbers["eval_success"] for numbers in roles if "eval_success" in numbers]
    return mean(found) if found else None


class Sparkline:
    """The latest numbers as bars, as many as fit; "·" is not a number."""

    def __init__(self, values: Iterable[float]) -> None:
        self._values = list(values)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, HISTORY).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bars = ASCII_BARS if options.ascii_only else BARS
        values = self._values[-options.max_width :]
        yield Text(sparkline(values, bars).ljust(options.max_width), style="green", no_wrap=True)


def sparkline(values: Sequence[float], bars: str = BARS) -> str:
    """One character per number, from the lowest to the highest bar."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    top = len(bars) - 1

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return "·" if bars == BARS else " "
        return bars[round((value - low) / (high - low) * top) if high > low else top // 2]

    return "".join(bar(value) for value in values)


def _table(names: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=True)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    return table


def _shown(numbers: Numbers, key: str, form: str) -> str:
    return form.format(numbers[key]) if key in numbers else "-"


def _named(numbers: Numbers, key: str, form: str) -> list[str]:
    return [key, form.format(numbers[key])] if key in numbers else []


def _bounded(numbers: Numbers, key: str, form: str, limit: float) -> Text:
    """A number, in red beyond its limit or if it is not finite."""
    fine = key not in numbers or numbers[key] <= limit
    return Text(_shown(numbers, key, form), style="" if fine else "bold red")


def _worst(mismatches: Sequence[float]) -> float:
    return math.nan if any(math.isnan(mismatch) for mismatch in mismatches) else max(mismatches)


def _times(times: Numbers) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in times.items())


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
