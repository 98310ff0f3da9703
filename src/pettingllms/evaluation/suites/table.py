"""The table of a suite: a row for each form of each bench, and what an equal budget says."""

from collections.abc import Iterator

from pettingllms.evaluation.suites.results import Report, Result
from pettingllms.evaluation.suites.scoring import Measured
from pettingllms.evaluation.suites.token_matched import MAJORITY, PASS
from pettingllms.runs.scores import Estimate

TABLE = "table.md"
NONE = "–"
HEADS = (
    "bench", "form", "k", "avg@k", "pass@k", "majority@k", "tokens", "read", "seconds",
    "equal tokens: pass", "equal tokens: majority", "failed",
)  # fmt: skip


def rows_of(report: Report) -> list[list[str]]:
    """The cells of the whole table, heads first."""
    rows = [list(HEADS)]
    for result, name, found in _forms(report):
        cells = [str(found.k), *_shares(found), *_costs(found), *_equal(result, name)]
        rows.append([*_titles(result, name), *cells, _failed(found)])
    return rows


def short_rows_of(report: Report) -> list[list[str]]:
    """The same for a screen: whole percents, and one interval a row."""
    ks = {found.k for _, _, found in _forms(report)}
    k = ks.pop() if len(ks) == 1 else "k"
    heads = ["bench", "form", f"avg@{k}", f"pass@{k}", f"maj@{k}", "tokens", "seconds"]
    rows = [[*heads, "equal tokens", "failed"]]
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
    """The table as a page."""
    head, *rows = rows_of(report)
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    parts = [
        f"# {report.suite.title}: {report.evaluated.name}",
        table,
        "\n".join(f"- {line}" for line in remarks_on(report)),
        LEGEND,
        f"`{report.command}`, seed {report.settings.seed}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


LEGEND = (
    "In brackets: 95% intervals over tasks. Tokens: sampled for an answer; read: shown for it. "
    "Seconds: waited for its replies. Equal tokens: what each form reaches, if one of its plays is "
    "right (pass) or the commonest answer is (majority), with the tokens of one play of the dearer "
    "form, which pay for so many plays (×)."
)
SHORT_LEGEND = (
    "In brackets: 95% intervals over tasks. Tokens, seconds: for an answer. Equal tokens: by pass "
    "/ by majority, with the tokens of one play of the dearer form."
)


def remarks_on(report: Report) -> Iterator[str]:
    """What the numbers do not say by themselves."""
    for result in report.results:
        yield from _difference(result)
    for result in report.results:
        yield from _troubles(result)
    in_bytes = dict.fromkeys(r.name for r, _, found in _forms(report) if found.unit == "bytes")
    if in_bytes:
        where = "" if len(in_bytes) == len(report.results) else f" in {'; '.join(in_bytes)}"
        yield f"Tokens are bytes{where}, as nobody counted tokens."
    for name, reasons in report.skipped.items():
        yield f"{name}: passed over. {' '.join(reasons)}"


def _difference(result: Result) -> Iterator[str]:
    equal = result.equal
    if equal is None:
        if len(result.forms) > 1:
            yield f"{result.name}: no comparison at equal tokens, as none were counted alike."
        return
    gains = [
        f"{gain.value * 100:+.1f} points [{gain.low * 100:+.1f}, {gain.high * 100:+.1f}] by {rule}"
        for rule, gain in ((rule, pair.difference) for rule, pair in equal.pairs.items())
    ]
    budget = f"{equal.budget:,.0f} {equal.unit} a task"
    yield f"{result.name}, {budget}: team minus solo {', '.join(gains)}."
    if any(found.num_failed for found in result.forms.values()):
        yield f"{result.name}: plays that failed count as not reached in this comparison too."
    if equal.is_short:
        yield (
            f"{result.name}: the cheaper form did not play as often as the budget pays for, so its "
            "number is too low; raise max_samples."
        )


def _troubles(result: Result) -> Iterator[str]:
    for name, found in result.forms.items():
        where = f"{result.name}, {name}"
        plays = found.num_tasks * found.num_plays
        if found.num_failed:
            owners = ", ".join(f"{owner} {count}" for owner, count in found.failed.items())
            ended = (
                "so there is no number"
                if found.avg_ended is None
                else f"so ≥: they count as not reached. Of the others {found.avg_ended:.1%} did"
            )
            yield f"{where}: {found.num_failed} of {plays} plays failed ({owners}), {ended}."
        if found.num_cut:
            yield f"{where}: {found.num_cut} of {plays} plays were cut at a limit, not reached."
        if found.num_failed or found.num_cut:
            yield from (f"{where}: {n} times: {_line(text)}" for text, n in found.reasons.items())
        if found.num_long:
            yield (
                f"{where}: in {found.num_long} of {plays} plays a reply was cut at "
                "max_reply_tokens, and read as far as it goes."
            )


def _line(text: str) -> str:
    """A reason on one line, without what would steer a terminal or end a cell."""
    plain = "".join(c if c.isprintable() else " " for c in text).replace("|", "/")
    return " ".join(plain.split())[:200]


def _shares(found: Measured, digits: int = 1) -> list[str]:
    least = "≥ " if found.num_failed else ""
    shares = (found.avg, found.pass_at.get(found.k), found.majority_at.get(found.k))
    return [_share(share, digits, least) for share in shares]


def _costs(found: Measured) -> list[str]:
    return [f"{found.tokens:,.0f}", f"{found.prompt_tokens:,.0f}", f"{found.seconds:.2f}"]


def _equal(result: Result, form: str, digits: int = 1) -> list[str]:
    if result.equal is None:
        return [NONE, NONE]
    pairs = [result.equal.pairs.get(rule) for rule in (PASS, MAJORITY)]
    times = f" ({result.equal.plays[form]:.1f}×)"
    return [NONE if p is None else _share(getattr(p, form), digits) + times for p in pairs]


def _failed(found: Measured) -> str:
    return str(found.num_failed) + (f" + {found.num_cut} cut" if found.num_cut else "")


def _share(found: Estimate | None, digits: int, least: str = "") -> str:
    if found is None:
        return NONE
    low, high = (f"{100 * end:.{digits}f}" for end in (found.low, found.high))
    return f"{least}{found.value:.{digits}%} [{low}, {high}]"
