"""Drafts run in a sandboxed process only, and their faults are reported."""

from pathlib import Path

import pytest

import pettingllms
from pettingllms.envs.drafts import check, check_draft
from pettingllms.grading.grader import missing_isolation

pytestmark = pytest.mark.skipif(bool(missing_isolation()), reason=missing_isolation() or "possible")
VALID = (Path(pettingllms.__file__).parent / "cli" / "project" / "signals.py").read_text()
RESET = 'return State(str(task.data["color"]))'


def names_of(source: str, seconds: int = 60) -> list[str]:
    return [fault.name for fault in check_draft(source, seconds=seconds).faults]


def changed(old: str, new: str) -> str:
    assert old in VALID
    return VALID.replace(old, new)


def test_a_valid_draft_has_no_faults() -> None:
    report = check_draft(VALID)
    assert report.faults == ()
    assert (report.class_name, report.env_id) == ("Signals", "signals-v1")
    assert report.roles == ("sender", "receiver")


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("x = (", "does-not-load"),
        ("x = 1", "does-not-load"),
        ("import torch", "does-not-load"),
        (changed('id = "signals-v1"', 'id = "signals"'), "id-without-version"),
        (changed(RESET, "return State(random.choice(COLORS))"), "reset-not-repeatable"),
        (changed(RESET, "return 1 / 0"), "raises"),
        ("#" * (check.MAX_SOURCE + 1), "too-long"),
    ],
)
def test_a_faulty_draft_is_reported(source: str, fault: str) -> None:
    assert fault in names_of(source)


@pytest.mark.parametrize(
    "attack",
    [
        "open('/etc/passwd').read()",
        "import os; os.listdir('/usr')",
        "with open('/work/x', 'w') as file: file.write('x')",
        "import socket; socket.create_connection(('127.0.0.1', 22), 1)",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.fork()",
        "import threading; threading.Thread(target=print).start()",
        "import os; os.kill(1, 9) if os.getppid() else 1 / 0",
    ],
)
def test_a_draft_reaches_nothing(attack: str) -> None:
    """Each attack raises, so the draft does not load; or its process ends without a report."""
    assert names_of(f"{VALID}\n{attack}\n") in (["does-not-load"], ["no-report"])


def test_a_draft_sees_neither_environment_variables_nor_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PETTINGLLMS_SECRET", "hunter2")
    shown = "import os; raise ValueError(sorted(os.environ), os.getpid(), os.getppid())"
    (fault,) = check_draft(shown).faults
    assert "PETTINGLLMS_SECRET" not in fault.detail
    assert "1, 0)" in fault.detail, "process 1 of a new namespace"


@pytest.mark.parametrize("attack", ["while True: pass", "x = [0]\nwhile True: x += x"])
def test_a_draft_that_exceeds_a_limit_has_no_report(attack: str) -> None:
    found = names_of(attack, seconds=2)
    assert found in (["no-report"], ["does-not-load"]), "the memory limit raises in the draft"


@pytest.mark.parametrize(
    "report",
    [
        "not json",
        "[1]",
        '{"class": "a\\nimport os", "id": "", "roles": [], "faults": []}',
        '{"class": "", "id": "", "roles": [], "faults": []}',
        '{"class": "A", "id": "", "roles": 3, "faults": []}',
    ],
)
def test_a_faked_report_is_no_report(report: str) -> None:
    forged = (
        "import os\n"
        "for number in range(3, 64):\n"
        "    try:\n"
        f"        os.write(number, {report.encode() + bytes([10])!r})\n"
        "    except OSError:\n"
        "        pass\n"
        "os._exit(0)\n"
    )
    assert names_of(forged) == ["no-report"]
