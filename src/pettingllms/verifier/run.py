"""Collect answers, train a verifier and measure it on held-out answers, in one call."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from pettingllms.config import RunConfig
from pettingllms.errors import DataError
from pettingllms.policies.files import CRITIC_FILE
from pettingllms.types import Scored
from pettingllms.verifier.classifier import Verifier, load_verifier, write_verifier
from pettingllms.verifier.collect import collect_answers
from pettingllms.verifier.evaluate import Report, measure
from pettingllms.verifier.labeled_answers import Answer, read_answers, write_answers
from pettingllms.verifier.train import train_verifier, verifier_spec

TRAIN_FILE, TEST_FILE = "train.jsonl", "test.jsonl"
REPORT_FILE = "report.json"


def make_verifier(
    config: RunConfig, folder: Path, out: Path, notify: Callable[[str], None]
) -> Report:
    """Write answers and a report to a folder, and the verifier to another. Answers that are there
    already are used."""
    train, test = _answers(config, folder, notify)
    losses: list[float] = []
    files = train_verifier(
        config, train, lambda _, measured: losses.append(measured["value_loss"]), notify
    )
    notify(f"trained on {len(train)} answers; loss {losses[0]:.3f} to {losses[-1]:.3f}")
    write_verifier(out, verifier_spec(config), files[CRITIC_FILE])
    report = report_on(load_verifier(out), test)
    (folder / REPORT_FILE).write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")
    return report


def _answers(
    config: RunConfig, folder: Path, notify: Callable[[str], None]
) -> tuple[list[Answer], list[Answer]]:
    """Training and test answers of the folder, collected if they are missing."""
    files = (folder / TRAIN_FILE, folder / TEST_FILE)
    if all(file.is_file() for file in files):
        train, test = map(read_answers, files)
        return train, test
    sides = collect_answers(config, notify)
    for file, answers in zip(files, sides, strict=True):
        part = file.with_suffix(".part")
        write_answers(part, answers)
        part.rename(file)
    return sides


def report_on(verifier: Verifier, answers: Sequence[Answer]) -> Report:
    """The report of a verifier on labeled answers."""
    rewards = verifier.score([(answer.messages, answer.text) for answer in answers])
    scored = [(a, r.value) for a, r in zip(answers, rewards, strict=True) if isinstance(r, Scored)]
    if not scored:
        raise DataError("the verifier can score none of the test answers")
    return measure(
        [score for _, score in scored],
        [answer.correct for answer, _ in scored],
        [answer.question for answer, _ in scored],
        len(answers) - len(scored),
    )
