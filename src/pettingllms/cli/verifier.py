"""`verifier`: collect labeled answers, and train, evaluate and serve a verifier."""

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.config.verifier import VerifierConfig
from pettingllms.errors import ConfigError
from pettingllms.policies.files import CRITIC_FILE
from pettingllms.runs.trust import load_user_config
from pettingllms.verifier.labeled_answers import read_answers, write_answers

TRAIN_FILE, TEST_FILE = "train.jsonl", "test.jsonl"
REPORT_FILE, PICTURE_FILE, KEY_FILE = "report.json", "calibration.png", "key"
LOSSES_FILE = "losses.json"
SHORTEST_KEY = 16


def collect(config: Path, words: Sequence[str], out: Path) -> None:
    """Write answers for training and for testing. A word with a `=` is an override, any other word
    an episode file."""
    from pettingllms.verifier.collect import collect_answers

    run = load_user_config(config, [word for word in words if "=" in word])
    files = [word for word in words if "=" not in word]
    if files:
        named = (run.verifier or VerifierConfig()).model_copy(update={"episodes": files})
        run = run.model_copy(update={"verifier": named})
    out.mkdir(parents=True, exist_ok=True)
    train, test = collect_answers(run, lambda text: console.print(escape(text)))
    for name, answers in ((TRAIN_FILE, train), (TEST_FILE, test)):
        write_answers(out / name, answers)
        right = sum(answer.correct for answer in answers)
        questions = len({answer.question for answer in answers})
        counts = f"{len(answers)} answers to {questions} questions, {right} correct"
        console.print(f"[bold]{escape(str(out / name))}[/]: {counts}")


def train_on(config: Path, answers: Path, overrides: Sequence[str], out: Path) -> None:
    """Train a verifier and write it as a folder."""
    from pettingllms.verifier.classifier import SETTINGS_FILE, write_verifier
    from pettingllms.verifier.train import train_verifier, verifier_spec

    run = load_user_config(config, overrides)
    if (out / SETTINGS_FILE).exists():
        raise ConfigError(str(out), ["already holds a verifier; give another folder with --out"])
    known = read_answers(_file(answers, TRAIN_FILE))
    losses: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("steps", total=(run.verifier or VerifierConfig()).num_steps)

        def done(step: int, measured: dict[str, float]) -> None:
            losses.append(measured["value_loss"])
            progress.update(bar, completed=step, description=f"loss {losses[-1]:.3f}")

        files = train_verifier(run, known, done, lambda text: console.print(escape(text)))
    write_verifier(out, verifier_spec(run), files[CRITIC_FILE])
    (out / LOSSES_FILE).write_text(json.dumps(losses), encoding="utf-8")
    console.print(f"{len(known)} answers; loss {losses[0]:.3f} to {losses[-1]:.3f}")
    console.print(f"[bold]{escape(str(out))}[/]: measure it with `pettingllms verifier eval`")


def report_on(verifier: Path, answers: Path, out: Path, device: str, as_json: bool) -> None:
    """Measure a verifier, and write a table, a report and a figure."""
    from pettingllms.verifier.classifier import load_verifier
    from pettingllms.verifier.run import report_on as measured

    known = read_answers(_file(answers, TEST_FILE))
    report = measured(load_verifier(verifier, device=device), known)
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(report), indent=1)
    (out / REPORT_FILE).write_text(text + "\n", encoding="utf-8")
    drawn = find_spec("matplotlib") is not None
    if drawn:
        from pettingllms.experiments.calibration_figure import draw_calibration

        draw_calibration(report, verifier.resolve().name, out / PICTURE_FILE)
    if as_json:
        console.out(text, highlight=False)
        return
    table = Table("measure", "value", title=f"{report.num_answers} answers")
    for name in ("auc", "auc_within", "accuracy", "brier", "ece", "num_failed"):
        value = getattr(report, name)
        table.add_row(name, "-" if value is None else f"{value:.4g}")
    console.print(table)
    where = escape(str(out / PICTURE_FILE))
    console.print(where if drawn else "no figure: pip install 'pettingllms\\[figures]'")


def serve_verifier(verifier: Path, port: int, variable: str, device: str) -> None:
    """Serve a verifier until the process is stopped."""
    from pettingllms.verifier.classifier import load_verifier
    from pettingllms.verifier.serve import LOOPBACK, serve

    loaded = load_verifier(verifier, device=device)
    key, where = _key(verifier, variable)

    def ready(at: int) -> None:
        console.print(f"http://{LOOPBACK}:{at}, key in {escape(where)}; press Ctrl-C to stop")

    serve(loaded.score, key, port, ready)


def _key(folder: Path, variable: str) -> tuple[str, str]:
    """The API key and where it is stored. The key is never printed."""
    if variable:
        if len(os.environ.get(variable, "")) < SHORTEST_KEY:
            problem = f"${variable} is not set, or shorter than {SHORTEST_KEY} characters"
            raise ConfigError("--key", [problem])
        return os.environ[variable], f"${variable}"
    path = folder / KEY_FILE
    path.unlink(missing_ok=True)
    made = secrets.token_urlsafe(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(made)
    return made, str(path)


def _file(path: Path, name: str) -> Path:
    return path / name if path.is_dir() else path
