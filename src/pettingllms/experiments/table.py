"""The table of an experiment as Markdown: one row per arm, one column per evaluation."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from pettingllms.experiments.difference import Difference, Mean, differences, mean_over_seeds
from pettingllms.experiments.experiment import Evaluation, Experiment
from pettingllms.experiments.results import Result

NONE = "–"
MINUS = "\N{MINUS SIGN}"
PAIRED = (
    "Mean paired differences over the seeds of both arms; shares in percentage points. Arms with "
    "the same seed share the base model and test tasks. Brackets: 95% confidence intervals, "
    "Student's t over seeds. T: one seed, so the interval is over test tasks only. No brackets: no "
    "interval is available. Intervals are not corrected for multiple comparisons."
)


def mean_cell(results: Sequence[Result], arm: str, column: Evaluation) -> Mean | None:
    """The mean of an arm in an evaluation, over the seeds with a result."""
    found = [
        result.evaluations[column.name].measured
        for result in results
        if result.arm == arm and column.name in result.evaluations
    ]
    return mean_over_seeds(found, column.is_share) if found else None


def make_table(experiment: Experiment, results: Sequence[Result], planned: str = "") -> str:
    """The page with the table, the section of planned contrasts, the differences and the
    provenance."""
    columns = experiment.evaluations
    names = [column.name for column in columns]
    headers = ["", *names, "training tokens", "tokens per episode", "training time"]
    rows = [headers, ["---"] * len(headers)]
    num_seeds = len({result.seed for result in results})
    for arm in experiment.arms:
        of_arm = [result for result in results if result.arm == arm.name]
        cells = [mean_cell(of_arm, arm.name, column) for column in columns]
        shown = [
            _shown(cell, column.is_share, num_seeds)
            for cell, column in zip(cells, columns, strict=True)
        ]
        rows.append([arm.name, *shown, *_costs(of_arm)])
    parts = [f"# {experiment.title}", experiment.question, lines(rows), _legend(results), planned]
    parts += [_differences(experiment, results), "\n".join(provenance(results))]
    return "\n\n".join(part for part in parts if part) + "\n"


def lines(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _differences(experiment: Experiment, results: Sequence[Result]) -> str:
    """All pairs of arms, compared on shared seeds and test tasks."""
    found = {(one.arm, one.minus, one.evaluation): one for one in differences(experiment, results)}
    if not found:
        return ""
    columns = experiment.evaluations
    rows = [["", *(column.name for column in columns)], ["---"] * (1 + len(columns))]
    for arm, minus in dict.fromkeys((arm, minus) for arm, minus, _ in found):
        cells = [
            _difference_cell(found.get((arm, minus, column.name)), column.is_share)
            for column in columns
        ]
        rows.append([f"{arm} − {minus}", *cells])
    return f"## Differences between arms\n\n{lines(rows)}\n\n{PAIRED}"


def _difference_cell(found: Difference | None, is_share: bool) -> str:
    if found is None:
        return NONE
    text = signed(found.value, is_share)
    if found.low is not None and found.high is not None:
        text += f" {interval((found.low, found.high), is_share)}"
    return text + (" T" if found.paired_by == "tasks" else "")


def signed(value: float, is_share: bool) -> str:
    """A difference with its sign; that of shares in percentage points."""
    scale, digits = (100, 1) if is_share else (1, 3)
    return f"{round(value * scale, digits) + 0.0:+.{digits}f}".replace("-", MINUS)


def interval(bounds: tuple[float, float] | None, is_share: bool) -> str:
    """The interval of a difference in brackets; empty without one."""
    if bounds is None:
        return ""
    return f"[{', '.join(signed(bound, is_share) for bound in bounds)}]"


def _shown(cell: Mean | None, is_share: bool, num_seeds: int) -> str:
    if cell is None:
        return NONE
    scale, digits = (100, 1) if is_share else (1, 3)
    text = f"{cell.value * scale:.{digits}f}{'%' if is_share else ''}"
    if cell.low is not None and cell.high is not None:
        text += f" [{cell.low * scale:.{digits}f}, {cell.high * scale:.{digits}f}]"
    if cell.interval == "wilson":
        text += " W"
    if cell.num_seeds < num_seeds:
        text += f" ({cell.num_seeds} of {num_seeds} seeds)"
    return text


def _costs(results: Sequence[Result]) -> list[str]:
    trained = [result.training for result in results if result.training is not None]
    tokens = [one.measured.tokens for result in results for one in result.evaluations.values()]
    return [
        f"{fmean(one.num_tokens for one in trained):,.0f}" if trained else NONE,
        f"{fmean(tokens):,.0f}" if tokens else NONE,
        _minutes(fmean(one.seconds for one in trained)) if trained else NONE,
    ]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.{0 if seconds >= 600 else 1}f} min"


def _legend(results: Sequence[Result]) -> str:
    """A legend with the seeds and the number of episodes."""
    if not results:
        return "No results yet."
    seeds = ", ".join(str(seed) for seed in sorted({result.seed for result in results}))
    counts = {
        one.measured.num_episodes for result in results for one in result.evaluations.values()
    }
    episodes = " or ".join(f"{number:,}" for number in sorted(counts))
    failed = sum(e.measured.num_failed for r in results for e in r.evaluations.values())
    means = (
        f"Means over seeds {seeds}, each with {episodes} episodes on test tasks. Brackets: 95% "
        "confidence intervals, Student's t over seeds. W: one seed, or identical seeds, so the "
        "interval is Wilson's over tasks only."
    )
    costs = (
        "Tokens and time are means over seeds. Training tokens are sampled by trained policies, "
        "including continuations. Training time is the time of all steps."
    )
    lines = [means, costs]
    if failed:
        lines.append(
            f"{failed} episodes failed. They count against the arm in success and loss; rewards "
            "and metrics are means over the other episodes."
        )
    return "\n".join(lines)


def provenance(results: Sequence[Result]) -> Iterator[str]:
    """One line per machine and set of versions."""
    seeds: dict[str, list[int]] = {}
    for result in results:
        machine = result.machine
        gpus = "".join(f", {gpu}" for gpu in machine.get("gpus", []))
        versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
        hardware = f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']:g} GiB"
        command = result.command.rpartition(" --seed ")[0]
        line = f"- `{command}` on {hardware}{gpus}; {versions}; seeds "
        seeds.setdefault(line, []).append(result.seed)
    for line, some in seeds.items():
        yield line + ", ".join(str(seed) for seed in sorted({*some}))
