"""A suite from its first bench to its last; what is done already is not done again."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pettingllms.errors import ConfigError
from pettingllms.evaluation.suites.checks import Ready, get_ready
from pettingllms.evaluation.suites.evaluated import EvaluatedPlayer, opened
from pettingllms.evaluation.suites.results import (
    EPISODES,
    RESULTS,
    Report,
    Result,
    asked,
    read_result,
)
from pettingllms.evaluation.suites.rollouts import Settings, play_bench
from pettingllms.evaluation.suites.scoring import measure
from pettingllms.evaluation.suites.suite import SOLO, TEAM, Bench, Suite
from pettingllms.evaluation.suites.table import TABLE, markdown
from pettingllms.evaluation.suites.token_matched import compare
from pettingllms.runs.folder import slug, write_whole
from pettingllms.types import write_episodes

Notify = Callable[[str], None]
Progress = Callable[[str, int, int], None]
"""A bench, how many of its plays have ended, and of how many."""


def run_suite(
    suite: Suite,
    evaluated: EvaluatedPlayer,
    settings: Settings,
    folder: Path,
    command: str,
    notify: Notify,
    skip_missing: bool,
    progress: Progress,
) -> Report:
    """Play what is missing of a suite, bench by bench, and write each result when it is there."""
    report = Report(suite, evaluated, settings, command)
    marks = {bench.title: asked(bench, evaluated, settings) for bench in suite.benches}
    found = {name: read_result(folder, name, fingerprint) for name, fingerprint in marks.items()}
    done = {name: result for name, result in found.items() if result is not None}
    left = [bench for bench in suite.benches if bench.title not in done]
    ready = get_ready(left, evaluated)
    _refuse(suite, ready, skip_missing)
    report.skipped = ready.missing
    left = [bench for bench in left if bench.title not in ready.missing]
    if done:
        notify(f"done before: {', '.join(done)}; remove {folder} to play everything again")
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
        asyncio.run(_play(left, ready, report, marks, folder, keep, notify, progress))
    return report


def write_report(report: Report, folder: Path) -> None:
    """Write every number, and the table."""
    write_whole(folder / RESULTS, json.dumps(report.to_json(), indent=1))
    write_whole(folder / TABLE, markdown(report))


def _refuse(suite: Suite, ready: Ready, skip_missing: bool) -> None:
    """Say all that is wrong, and all that is missing unless that is to be passed over."""
    missing = [f"{name}: {line}" for name, lines in ready.missing.items() for line in lines]
    nothing = len(ready.missing) == len(ready.forms) > 0
    if ready.wrong or (missing and not skip_missing) or (missing and nothing):
        hint = "--skip-missing goes on without such benches"
        problems = [*ready.wrong, *missing, *([hint] if missing and not skip_missing else [])]
        raise ConfigError(suite.title, problems)


async def _play(
    benches: Sequence[Bench],
    ready: Ready,
    report: Report,
    marks: dict[str, str],
    folder: Path,
    keep: Callable[[Result], None],
    notify: Notify,
    progress: Progress,
) -> None:
    async with opened(report.evaluated, notify) as player_of:
        for bench in benches:
            name, k, forms = bench.title, bench.num_samples, ready.forms[bench.title]
            start = time.perf_counter()
            tell = partial(progress, name)
            played = await play_bench(forms, player_of, report.settings, tell)
            seconds = time.perf_counter() - start
            for form, one in played.items():
                path = folder / EPISODES / f"{slug(name)}-{form}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_episodes(path, one.episodes)
            measured = {
                form: measure(forms[form].label, forms[form].role, one.plays, k, one.seconds)
                for form, one in played.items()
            }
            ended = all(one.avg is not None for one in measured.values())
            both = len(played) > 1 and ended
            equal = compare(played[TEAM].plays, played[SOLO].plays) if both else None
            keep(Result(name, bench.env, marks[name], seconds, measured, equal))
