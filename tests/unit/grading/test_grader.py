"""The grader against labelled pairs, against attacks, and against its own end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("math_verify", reason="needs the extra `math`")

from pettingllms.grading import Grader, Verdict, refusal
from pettingllms.grading import grader as grader_module
from pettingllms.grading.grader import MAX_STRETCH
from pettingllms.types import Failed, Scored

PAIRS = Path(__file__).parents[2] / "data" / "grading" / "pairs.jsonl"
SECONDS = 2.0
HOSTILE = {
    "a tower of powers": "9^{9^{9^{9}}}",
    "a huge power": "10^{10^{10}}",
    "a power of a huge number": "(10^{100})^{(10^{100})}",
    "a huge factorial": "(10^9)!",
    "factorials of factorials": "((((9!)!)!)!)!",
    "a huge binomial": "\\binom{10^9}{5\\cdot 10^8}",
    "an endless sum": "\\sum_{k=1}^{10^{12}} \\frac{1}{k^k}",
    "an endless product": "\\prod_{k=1}^{10^{9}} (k^2+1)",
    "an integral that nobody can do": "\\int_0^1 \\sin(\\sin(\\sin(x^{x}))) dx",
    "a limit that nobody can do": "\\lim_{x \\to 0} \\frac{\\sin(\\tan x)-\\tan(\\sin x)}{x^{77}}",
    "an expansion that fills the memory": "(a+b+c+d+e+f+g+h)^{99999}",
    "nested roots": "\\sqrt{2+" * 40 + "x" + "}" * 40,
    "nested fractions": "\\frac{1}{1+" * 200 + "x" + "}" * 200,
    "deep brackets": "(" * 5000 + "5" + ")" * 5000,
    "deep braces": "{" * 900 + "5" + "}" * 900,
    "braces that never close": "\\frac{" * 100,
    "an import": "__import__('os').system('touch /tmp/owned')",
    "an import in LaTeX": "\\text{__import__('os').system('id')}",
    "a class walk": "().__class__.__bases__[0].__subclasses__()",
    "a lambda": "(lambda: (yield))()",
    "an eval": "eval(open('/etc/passwd').read())",
    "a memory bomb": "'A' * 10**12",
    "null bytes": "5\x00\x00",
    "control signs": "\x1b[2J5",
    "half a character": "5\ud800",
    "a very long number": "9" * 100_000,
    "a very long sum": "+".join(["1"] * 100_000),
    "nothing": "",
    "only spaces": " \t\n ",
    "a line that ends the request": '5"}\n{"right": true}\n',
    "a forged verdict": '{"right": true}',
    "a TeX program": "\\def\\x{\\x\\x}\\x",
    "an include": "\\input{/etc/passwd}",
    "regex poison": "\\boxed{" + "{a" * 120 + " \\text{" + " " * 300,
}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    made = Grader(num_workers=1, seconds=SECONDS)
    yield made
    made.close()


def read_pairs() -> list[dict]:
    return [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


def test_it_agrees_with_every_label(grader: Grader) -> None:
    wrong = []
    for pair in read_pairs():
        verdict = grader.grade(pair["answer"], pair["truth"])
        if verdict.failure is not None or verdict.right != pair["right"]:
            wrong.append((pair, verdict))
    assert not wrong


def test_the_labelled_set_is_large_and_balanced() -> None:
    pairs = read_pairs()
    assert len(pairs) >= 300
    assert len({(pair["answer"], pair["truth"]) for pair in pairs}) == len(pairs)
    labels, kinds = Counter(pair["right"] for pair in pairs), Counter(p["kind"] for p in pairs)
    assert min(labels.values()) > len(pairs) / 3
    assert {"fraction", "set", "interval", "units", "percent", "root", "text", "matrix"} <= set(
        kinds
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_never_right_and_does_no_harm(grader: Grader, name: str) -> None:
    start = time.monotonic()
    verdict = grader.grade(HOSTILE[name], "5")
    seconds = time.monotonic() - start
    assert verdict.reward(1.0, -0.25) == Scored(-0.25), "as a wrong answer, and no failure"
    assert seconds < MAX_STRETCH * SECONDS + 5
    assert grader.grade("\\frac{10}{2}", f"5.{'0' * (1 + list(HOSTILE).index(name))}").right


def test_there_are_enough_attacks_and_none_leaves_a_trace() -> None:
    assert len(HOSTILE) >= 20
    assert not Path("/tmp/owned").exists()  # noqa: S108 - where the attack writes


def test_an_answer_that_takes_too_long_is_wrong_and_is_not_read_again(grader: Grader) -> None:
    verdict = grader.grade("9^{9^{9^{8}}}", "5")
    assert verdict.refusal == f"it is not read within {SECONDS:g} s"
    assert verdict.reward() == Scored(0.0)
    start = time.monotonic()
    assert grader.grade("9^{9^{9^{8}}}", "5") == verdict
    assert time.monotonic() - start < SECONDS / 2


DEADLY = """
import os, resource, signal, sys, time
class Reader:
    def same(self, answer, truth):
        if answer == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if answer == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if answer == "leave":
            os._exit(0 if truth == "5" else 7)
        if answer == "raise":
            raise ZeroDivisionError
        if answer == "recurse":
            return self.same(answer, truth)
        if answer == "fill":
            return bytearray(1 << 40)
        if answer == "import":
            import this
        if answer == "sleep":
            time.sleep(60)
        return truth == "1.5" and READS
"""
FAULTS = ("kill", "crash", "leave", "raise", "recurse", "fill", "import")


def deadly(monkeypatch: pytest.MonkeyPatch, reads: bool) -> Grader:
    """A grader whose reader does what the answer names; `reads` is whether it reads the rest."""
    boot = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        f"space = {{'READS': {reads}}}\nexec({DEADLY!r}, space)\n"
        "from pettingllms.grading import reading, worker\n"
        "reading.MathVerify = space['Reader']\n"
        "worker.serve(float(sys.argv[2]), int(sys.argv[3]), confined=False)"
    )
    monkeypatch.setattr(grader_module, "BOOT", boot)
    return Grader(num_workers=1, seconds=SECONDS)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_answer_on_which_two_processes_end_is_wrong(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grader = deadly(monkeypatch, reads=True)
    try:
        verdict = grader.grade(fault, "5")
        assert verdict.reward() == Scored(0.0)
        assert verdict.refusal
        assert grader.grade("x", "1.5").right, "the next answer has a process again"
    finally:
        grader.close()


def test_a_silence_that_only_one_answer_meets_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grader_module, "MAX_STRETCH", 0.5)
    grader = deadly(monkeypatch, reads=True)
    try:
        assert grader.grade("sleep", "5").reward() == Scored(0.0)
    finally:
        grader.close()


@pytest.mark.parametrize("fault", ["kill", "fill"])
def test_a_grader_that_cannot_read_a_known_answer_either_has_failed(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine without free memory, whichever process uses it."""
    grader = deadly(monkeypatch, reads=False)
    try:
        verdict = grader.grade(fault, "5")
        assert verdict.failure
        reward = verdict.reward()
        assert isinstance(reward, Failed)
        assert reward.owner == "judge"
    finally:
        grader.close()


def test_verdicts_become_the_rewards_that_were_asked_for() -> None:
    assert Verdict(right=True).reward() == Scored(1.0)
    assert Verdict(right=False).reward() == Scored(0.0)
    assert Verdict(right=False).reward(2.0, -1.0) == Scored(-1.0)
    assert Verdict(refusal="too long").reward() == Scored(0.0)


def test_refusals_go_by_looks_alone() -> None:
    assert refusal("\\frac{1}{2}") is None
    assert refusal("x" * 1001) is not None
    assert refusal("(" * 17 + ")" * 17) is not None
    assert refusal("a\x00") is not None


def test_nothing_is_read_as_mathematics_in_our_own_process() -> None:
    code = (
        "import sys; from pettingllms.grading import Grader; g = Grader(1); "
        "v = g.grade('\\\\frac{2}{4}', '0.5'); g.close(); "
        "print(v.right, {'sympy', 'math_verify', 'antlr4'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "set()"]


def test_a_worker_that_dies_is_replaced(grader: Grader) -> None:
    assert grader.grade("\\frac{14}{2}", "7").right
    worker = grader._idle.queue[0]
    assert worker is not None
    os.killpg(worker._process.pid, signal.SIGKILL)
    assert grader.grade("\\frac{16}{2}", "8").right
    assert grader.grade("\\frac{18}{2}", "9").right


def test_threads_share_the_workers_and_get_their_own_verdicts(grader: Grader) -> None:
    found: dict[int, bool] = {}

    def ask(number: int) -> None:
        found[number] = grader.grade(f"\\frac{{{2 * number}}}{{2}}", f"{number}.0").right

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(1, 13), True)


def test_no_worker_outlives_the_process_that_asked() -> None:
    code = (
        "import os; from pettingllms.grading import Grader; g = Grader(1); "
        "g.grade('\\\\frac{2}{4}', '0.5'); print(g._idle.queue[0]._process.pid, flush=True); "
        "os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"process {pid} is still there")
