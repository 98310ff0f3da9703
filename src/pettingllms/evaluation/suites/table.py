"""The table of a suite: one row per form and bench, with the comparison at equal tokens."""

from collections.abc import Iterator

from pettingllms.evaluation.suites.references import published_rows
from pettingllms.evaluation.suites.results import Result
from pettingllms.evaluation.suites.scoring import Measured
from pettingllms.evaluation.suites.suite_report import Report
from pettingllms.evaluation.suites.token_matched import MAJORITY, PASS
from pettingllms.runs.scores import Estimate

TABLE = "table.md"
NONE = "–"
HEADERS = (
    "bench", "form", "tasks", "k", "avg@k", "pass@k", "majority@k", "tokens", "prompt tokens",
    "seconds", "equal tokens: pass", "equal tokens: majority", "failed",
)  # fmt: skip


def full_rows(report: Report) -> list[list[str]]:
    """The cells of the full table, header first."""
    rows = [list(HEADERS)]
    for result, name, found in _forms(report):
        cells = [*_shares(found), *_costs(found), *_equal(result, name), _failed(found)]
        rows.append([*_titles(result, name), str(found.num_tasks), str(found.k), *cells])
    return rows


def short_rows(report: Report) -> list[list[str]]:
    """A narrower table for terminals: whole percents and one interval per row."""
    ks = {found.k for _, _, found in _forms(report)}
    k = ks.pop() if len(ks) == 1 else "k"
    headers = ["bench", "form", f"avg@{k}", f"pass@{k}", f"maj@{k}", "tokens", "seconds"]
    rows = [[*headers, "equal tokens", "failed"]]
    for result, name, found in _forms(report):
        avg, *others = _shares(found, digits=0)
        tokens, _, seconds = _costs(found)
        equal = [cell.partition(" [")[0] for cell in _equal(result, name, digits=0)]
        at_equal = " / ".join(cell for cell in equal if cell != NONE) or NONE
        cells = [avg, *(cell.partition(" [")[0] for cell in others), tokens, seconds, at_equal]
        rows.append([*_titles(result, name), *cells, _failed(found)])
    return rows


def _forms(report: Report) -> Iterator[tuple[Result, str, Measured]]:
    for result in report.results:
        for name, found in result.forms.items():
            yield result, name, found


def _titles(result: Result, form: str) -> list[str]:
    title = result.name if form == next(iter(result.forms)) else ""
    return [title, result.forms[form].label]


def markdown(report: Report) -> str:
    """The table as a Markdown page."""
    published = reference_rows(report)
    parts = [
        f"# {report.suite.title}: {report.evaluated.name}",
        _grid(full_rows(report)),
        "\n".join(f"- {line}" for line in remarks(report)),
        legend(report),
        *([f"## {PUBLISHED_TITLE}", _grid(published)] if published else []),
        "\n".join(f"- {line}" for line in source_lines(report)),
        f"`{report.command}`, seed {report.settings.seed}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _grid(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def reference_rows(report: Report) -> list[list[str]]:
    """What was measured and what is published, one column per test set; empty if nothing is."""
    found = report.published
    if not found:
        return []
    of = {bench.title: bench.reference for bench in report.suite.benches}
    measured = [
        (of[result.name], name, report.evaluated.name, _shares(one)[0])
        for result, name, one in _forms(report)
    ]
    return published_rows(found, measured)


def source_lines(report: Report) -> Iterator[str]:
    """Where the published numbers are from."""
    sources: dict[str, list[str]] = {}
    for one in report.published:
        sources.setdefault(one.source, []).append(f"{one.model}, {one.method}")
    for source, rows in sources.items():
        yield f"{source}: {'; '.join(dict.fromkeys(rows))}."


PUBLISHED_TITLE = "Published numbers, measured by others with other software"
LEGEND = (
    "In brackets: 95% confidence intervals over tasks. Tokens: sampled per episode. Seconds: time "
    "waiting for replies per episode."
)
EQUAL_LEGEND = (
    "Equal tokens: success of each form by pass (any episode succeeds) or by majority (the most "
    "common answer is correct), given the tokens of one episode of the more expensive form; × is "
    "the number of episodes that this budget covers."
)
SHORT_LEGEND = "In brackets: 95% confidence intervals over tasks. Tokens, seconds: per episode."
SHORT_EQUAL_LEGEND = (
    "Equal tokens: by pass / by majority, given the tokens of one episode of the more expensive "
    "form."
)


def legend(report: Report, short: bool = False) -> str:
    """What the columns mean; equal tokens only where forms are compared."""
    parts = (SHORT_LEGEND, SHORT_EQUAL_LEGEND) if short else (LEGEND, EQUAL_LEGEND)
    compared = any(result.equal is not None for result in report.results)
    return " ".join(parts if compared else parts[:1])


def remarks(report: Report) -> Iterator[str]:
    """Notes below the table: differences, failures, truncations and skipped benches."""
    for result in report.results:
        yield from _difference(result)
    for result, name, found in _forms(report):
        for metric, mean in found.metrics.items():
            value = f"{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]"
            yield f"{result.name}, {name}: mean {metric} {value}."
    yield from (one.line() for one in report.comparisons)
    if report.changed and any(bench.protocol for bench in report.suite.benches):
        yield f"Not the protocol of the suite: {', '.join(report.changed)}."
    for result in report.results:
        yield from _failures(result)
    in_bytes = dict.fromkeys(r.name for r, _, found in _forms(report) if found.unit == "bytes")
    if in_bytes:
        where = "" if len(in_bytes) == len(report.results) else f" in {'; '.join(in_bytes)}"
        yield f"Counts are bytes{where}, because no tokenizer was available."
    for name, reasons in report.skipped.items():
        yield f"{name}: skipped. {' '.join(reasons)}"


def _difference(result: Result) -> Iterator[str]:
    equal = result.equal
    if equal is None:
        if len(result.forms) > 1:
            yield f"{result.name}: no comparison at equal tokens (the units differ)."
        return
    gains = [
        f"{gain.value * 100:+.1f} points [{gain.low * 100:+.1f}, {gain.high * 100:+.1f}] by {rule}"
        for rule, gain in ((rule, pair.difference) for rule, pair in equal.pairs.items())
    ]
    budget = f"{equal.budget:,.0f} {equal.unit} per task"
    yield f"{result.name}, {budget}: team minus solo {', '.join(gains)}."
    if any(found.num_failed for found in result.forms.values()):
        yield f"{result.name}: failed episodes count as unsuccessful in this comparison too."
    if equal.is_short:
        yield (
            f"{result.name}: the cheaper form has fewer episodes than the budget covers, so its "
            "score is too low; raise max_samples."
        )


def _failures(result: Result) -> Iterator[str]:
    for name, found in result.forms.items():
        where = f"{result.name}, {name}"
        total = found.num_tasks * found.num_samples
        if found.num_failed:
            owners = ", ".join(f"{owner} {count}" for owner, count in found.failed.items())
            note = (
                "so there is no score"
                if found.avg_completed is None
                else f"so ≥: they count as unsuccessful. Others: {found.avg_completed:.1%}"
            )
            yield f"{where}: {found.num_failed} of {total} episodes failed ({owners}), {note}."
        if found.num_truncated:
            yield f"{where}: {found.num_truncated} of {total} episodes were truncated at a limit."
        if found.num_failed or found.num_truncated:
            yield from (f"{where}: {n} times: {_line(text)}" for text, n in found.reasons.items())
        if found.num_truncated_replies:
            yield (
                f"{where}: in {found.num_truncated_replies} of {total} episodes a reply was "
                "truncated at max_reply_tokens."
            )


def _line(text: str) -> str:
    """A reason on one line, without control characters and cell separators."""
    plain = "".join(c if c.isprintable() else " " for c in text).replace("|", "/")
    return " ".join(plain.split())[:200]


def _shares(found: Measured, digits: int = 1) -> list[str]:
    bound = "≥ " if found.num_failed else ""
    shares = (found.avg, found.pass_at.get(found.k), found.majority_at.get(found.k))
    return [_share(share, digits, bound) for share in shares]


def _costs(found: Measured) -> list[str]:
    return [f"{found.tokens:,.0f}", f"{found.prompt_tokens:,.0f}", f"{found.seconds:.2f}"]


def _equal(result: Result, form: str, digits: int = 1) -> list[str]:
    if result.equal is None:
        return [NONE, NONE]
    pairs = [result.equal.pairs.get(rule) for rule in (PASS, MAJORITY)]
    times = f" ({result.equal.num_samples[form]:.1f}×)"
    return [NONE if p is None else _share(getattr(p, form), digits) + times for p in pairs]


def _failed(found: Measured) -> str:
    return str(found.num_failed) + (
        f" + {found.num_truncated} truncated" if found.num_truncated else ""
    )


def _share(found: Estimate | None, digits: int, bound: str = "") -> str:
    if found is None:
        return NONE
    low, high = (f"{100 * end:.{digits}f}" for end in (found.low, found.high))
    return f"{bound}{found.value:.{digits}%} [{low}, {high}]"
