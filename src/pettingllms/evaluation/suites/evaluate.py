"""Run a suite bench by bench, skipping benches with stored results."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pettingllms.errors import ConfigError
from pettingllms.evaluation.suites.bench_data import SKIP, merged, task_source
from pettingllms.evaluation.suites.checks import CheckedBenches, check_benches
from pettingllms.evaluation.suites.evaluated import EvaluatedPlayer, open_evaluated
from pettingllms.evaluation.suites.results import (
    EPISODES,
    RESULTS,
    Result,
    fingerprint,
    read_result,
)
from pettingllms.evaluation.suites.rollouts import run_bench
from pettingllms.evaluation.suites.scoring import measure
from pettingllms.evaluation.suites.suite import SOLO, TEAM, Bench, Suite
from pettingllms.evaluation.suites.suite_report import Report
from pettingllms.evaluation.suites.table import TABLE, markdown
from pettingllms.evaluation.suites.token_matched import compare
from pettingllms.runs.folder import slug, write_whole
from pettingllms.types import write_episodes

Notify = Callable[[str], None]
Progress = Callable[[str, int, int], None]
"""Called with a bench, its number of finished episodes, and their total."""


def run_suite(
    report: Report, folder: Path, notify: Notify, skip_missing: bool, progress: Progress
) -> None:
    """Run the benches of a report without stored results, and write each result as it finishes."""
    suite, evaluated, settings = report.suite, report.evaluated, report.settings
    prints = {bench.title: fingerprint(bench, evaluated, settings) for bench in suite.benches}
    found = {name: read_result(folder, name, one) for name, one in prints.items()}
    done = {name: result for name, result in found.items() if result is not None}
    left = [bench for bench in suite.benches if bench.title not in done]
    checked = check_benches(left, evaluated)
    _require_runnable(suite, checked, skip_missing)
    report.skipped = checked.missing
    left = [bench for bench in left if bench.title not in checked.missing]
    if done:
        notify(f"already done: {'; '.join(done)}; delete {folder} to run everything again")
    for note in _context_notes(left, evaluated):
        notify(note)
    folder.mkdir(parents=True, exist_ok=True)

    def keep(result: Result) -> None:
        done[result.name] = result
        report.results = [done[b.title] for b in suite.benches if b.title in done]
        if result.has_number:
            result.write(folder)
        write_report(report, folder)

    report.results = [done[bench.title] for bench in suite.benches if bench.title in done]
    write_report(report, folder)
    if left:
        asyncio.run(_run(left, checked, report, prints, folder, keep, notify, progress))


def _context_notes(benches: Sequence[Bench], evaluated: EvaluatedPlayer) -> Iterator[str]:
    """Reply limits of benches that the context of the engines cannot hold."""
    if evaluated.config is None:
        return
    room = evaluated.config.inference.max_model_len
    limits = {bench.title: bench.max_reply_tokens for bench in benches}
    if over := {title: limit for title, limit in limits.items() if limit >= room}:
        yield (
            f"note: replies may have {max(over.values()):,} tokens in {'; '.join(over)}, but the "
            f"context of the engines is {room:,} with the prompt; replies that it cuts count as no "
            "success; set inference.max_model_len=TOKENS"
        )


def write_report(report: Report, folder: Path) -> None:
    """Write the results file and the table."""
    write_whole(folder / RESULTS, json.dumps(report.to_json(), indent=1))
    write_whole(folder / TABLE, markdown(report))


def _require_runnable(suite: Suite, checked: CheckedBenches, skip_missing: bool) -> None:
    """Raise ConfigError with all errors, and all missing requirements unless they are skipped."""
    missing = merged(checked.missing)
    none_left = len(checked.missing) == len(checked.forms) > 0
    if checked.errors or (missing and not skip_missing) or (missing and none_left):
        problems = [*checked.errors, *missing, *([SKIP] if missing and not skip_missing else [])]
        raise ConfigError(suite.title, problems)


async def _run(
    benches: Sequence[Bench],
    checked: CheckedBenches,
    report: Report,
    prints: dict[str, str],
    folder: Path,
    keep: Callable[[Result], None],
    notify: Notify,
    progress: Progress,
) -> None:
    async with open_evaluated(report.evaluated, notify) as player_for:
        for bench in benches:
            name, k, forms = bench.title, bench.num_samples, checked.forms[bench.title]
            start = time.perf_counter()
            bench_progress = partial(progress, name)
            played = await run_bench(forms, player_for, report.settings, bench_progress)
            seconds = time.perf_counter() - start
            for form, one in played.items():
                path = folder / EPISODES / f"{slug(name)}-{form}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_episodes(path, one.episodes)
            measured = {
                form: measure(forms[form].label, forms[form].role, one.scores, k, one.seconds)
                for form, one in played.items()
            }
            complete = all(one.avg is not None for one in measured.values())
            both = len(played) > 1 and complete
            equal = compare(played[TEAM].scores, played[SOLO].scores) if both else None
            source = task_source(bench)
            keep(Result(name, bench.env, prints[name], seconds, measured, equal, source))
