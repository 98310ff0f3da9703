"""A one-page report on a run: config, progress and diagnostics."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.errors import ConfigError
from pettingllms.experiments.curves import short, spark
from pettingllms.experiments.document import Document
from pettingllms.experiments.results import TOKENS, training_cost
from pettingllms.runs.diagnostics import RECENT, diagnose, early, progress, recent
from pettingllms.runs.scores import wilson
from pettingllms.types import read_episodes
from pettingllms.types.shards import SUFFIX
from pettingllms.viewer.sources import ViewedRun

NUM_FILES = 10
"""Number of latest steps whose failures are counted."""
NUM_REASONS = 5
Rows = Sequence[Mapping[str, Any]]


def run_report_page(run: ViewedRun, figure: str = "") -> Document:
    """The page; `figure` is the address of a picture, if any."""
    rows = run.metrics()
    if run.config is None:
        raise ConfigError(str(run.path), [run.problem or "is not a run folder"])
    page = Document(f"Run {run.name}")
    _what(page, run, rows)
    if not rows:
        page.text("No training step is complete yet.")
        return page
    page.head("Results")
    if figure:
        page.picture(figure, "learning curves")
    _roles(page, run, rows)
    _policies(page, run, rows)
    _diagnoses(page, run, rows)
    page.head("More details")
    page.code(f"pettingllms view {run.path}\npettingllms plot {run.path}")
    return page


def _what(page: Document, run: ViewedRun, rows: Rows) -> None:
    config = run.config
    assert config is not None  # noqa: S101 - checked by the caller
    page.head("Training setup")
    done = training_cost([dict(row) for row in rows]) if rows and TOKENS in rows[-1] else None
    facts = {
        "environment": config.env.id,
        "algorithm": config.algo.type,
        "steps": f"{len(rows)} of {config.train.num_steps}",
        "episodes per step": str(config.rollout.num_tasks * config.rollout.num_episodes),
        "sampled tokens": f"{done.num_tokens:,}" if done else "–",
        "training time": f"{done.seconds / 60:.1f} minutes" if done else "–",
        "seed": str(config.seed),
        "versions": ", ".join(f"{name} {number}" for name, number in run.versions().items()),
    }
    page.table(["", ""], [[name, value] for name, value in facts.items() if value])
    policies = []
    for name, policy in config.policies.items():
        roles = [role for role, played in config.roles.items() if played == name]
        model = getattr(policy, "model", "") or getattr(policy, "player", "")
        rate = getattr(policy, "lr", None)
        learns = name in config.trained_policies()
        policies.append(
            [name, ", ".join(roles), policy.kind, Path(model).name, f"{rate:g}" if learns else "–"]
        )
    page.table(["policy", "roles", "kind", "model", "learning rate"], policies)


def _roles(page: Document, run: ViewedRun, rows: Rows) -> None:
    config = run.config
    assert config is not None  # noqa: S101 - as above
    table = []
    for role in config.roles:
        key = f"roles/{role}/"
        table.append(
            [
                role,
                _change(rows, f"{key}reward"),
                _success(rows, f"{key}success"),
                _evaluated(rows, f"{key}eval_success", config.eval.num_tasks),
                spark([row[f"{key}reward"] for row in rows if row.get(f"{key}reward") is not None]),
            ]
        )
    page.table(["role", "reward", "success, last steps", "success on test tasks", "reward"], table)
    page.text(
        "Reward: mean of the first and of the last quarter of steps, with twice the error of the "
        "difference. Success: with 95% intervals; in a tree, of the best branches."
    )


def _policies(page: Document, run: ViewedRun, rows: Rows) -> None:
    assert run.config is not None  # noqa: S101 - as above
    names = {
        "sampler_entropy": "entropy", "mismatch": "mismatch", "zero_share": "zero advantages",
        "grad_norm": "gradient norm", "tokens_per_second": "trained tokens/s",
    }  # fmt: skip
    table = []
    for policy in sorted(run.config.trained_policies()):
        cells = [policy]
        for name in names:
            first, last = (of(rows, f"policies/{policy}/{name}") for of in (early, recent))
            if first is None or last is None:
                cells.append("–")
            else:
                cells.append(f"{short(first)} → {short(last)}")
        table.append(cells)
    page.table(["policy", *names.values()], table)
    page.text(f"Policies: means over the first {RECENT} steps → over the last {RECENT}.")


def _diagnoses(page: Document, run: ViewedRun, rows: Rows) -> None:
    assert run.config is not None  # noqa: S101 - as above
    page.head("Diagnostics")
    found = diagnose(rows, run.config)
    if found:
        page.points([f"{diagnosis.what}. Fix: {diagnosis.help}." for diagnosis in found])
    else:
        page.text(
            "No problems found in failures, skipped updates, train-inference mismatch, zero "
            "advantages, entropy, truncated replies, evaluation results or rewards."
        )
    reasons = failures(run)
    if reasons:
        page.text("Failure reasons of turns in the latest saved steps:")
        page.table(["reason", "turns"], [[reason, str(num)] for reason, num in reasons])


def failures(run: ViewedRun) -> list[tuple[str, int]]:
    """The most frequent failure reasons in the latest episode files."""
    files = run.episode_files()
    newest = sorted(files, key=lambda path: (files[path], path.name))[-NUM_FILES:]
    counts: Counter[str] = Counter()
    for path in newest:
        counts.update(_failures_in(path))
    return counts.most_common(NUM_REASONS)


def _failures_in(path: Path) -> Iterator[str]:
    """The failure of each failed turn. A last line that is still being written is left out."""
    if path.suffix == SUFFIX:
        turns = (turn for episode in read_episodes(path) for turn in episode.turns)
        failed = (turn.credit.failure for turn in turns)
        yield from (f"{one.owner}: {one.reason}" for one in failed if one)
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                written = [turn["failure"] for turn in json.loads(line)["turns"]]
                yield from (f"{one['owner']}: {one['failed']}" for one in written if one)


def _change(rows: Rows, name: str) -> str:
    found, last = progress(rows, name), recent(rows, name)
    if found is None:
        return "–" if last is None else f"{last:+.3f}"
    values = [row[name] for row in rows if row.get(name) is not None]
    first = sum(values[: len(values) // 4]) / (len(values) // 4)
    return f"{first:+.3f} → {first + found[0]:+.3f} (± {found[1]:.3f})"


def _success(rows: Rows, name: str) -> str:
    some = [row for row in rows[-5:] if row.get(name) is not None]
    num = int(sum(row.get("rollout/num_episodes") or 0 for row in some))
    if not num:
        return "–"
    share = sum(row[name] * row["rollout/num_episodes"] for row in some) / num
    low, high = wilson(share, num)
    return f"{share:.0%} ({low:.0%} to {high:.0%})"


def _evaluated(rows: Rows, name: str, num_tasks: int) -> str:
    found = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    if not found:
        return "–"
    low, high = wilson(found[-1][1], num_tasks)
    best = max(found, key=lambda one: one[1])
    text = f"{found[-1][1]:.0%} ({low:.0%} to {high:.0%})"
    return text if best[1] <= found[-1][1] else f"{text}; best {best[1]:.0%} after step {best[0]}"
