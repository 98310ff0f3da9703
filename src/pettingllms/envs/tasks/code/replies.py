"""Parse replies and sanitize text for the other role's prompt. Nothing is executed here.

A program is shown in the other role's prompt, so symbols that a chat template or a terminal could
interpret make the whole reply invalid. In program output and tests, such symbols are replaced.
"""

import json
import re

from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.envs.tasks.code.run import run_inside
from pettingllms.envs.toolkit.answers import CLOSE, OPEN, BadReply, answer_in
from pettingllms.envs.toolkit.fences import unfenced
from pettingllms.sandbox import Limits

MAX_LETTERS = 8000
MAX_LINE = 160
KEEP = "keep"
TEMPLATE = re.compile(r"<\||\|>|<｜|</?s>|\[/?INST\]|<(start|end)_of_turn>|</?(answer|think)>")
"""Markers that chat templates put between messages; none of them is Python."""
READ_LIMITS = Limits(seconds=5.0)


def text_in(reply: str, terse: bool) -> str:
    """The answer of a reply without a fence; BadReply if it is not safe for a prompt."""
    if terse and (OPEN in reply or CLOSE in reply):
        raise BadReply("the whole reply is the answer; leave the tags out")
    text = unfenced(answer_in(reply, terse).replace("\r\n", "\n"))
    if len(text) > MAX_LETTERS:
        raise BadReply(f"an answer has at most {MAX_LETTERS} letters")
    if any(len(line) > MAX_LINE for line in text.split("\n")):
        raise BadReply(f"a line has at most {MAX_LINE} letters")
    if TEMPLATE.search(text) or not all(sign.isprintable() or sign in "\n\t" for sign in text):
        raise BadReply("an answer has no signs of a chat template and none that cannot be printed")
    return text


def read_tests(problem: CodeProblem, text: str, max_tests: int) -> tuple[Case, ...]:
    """The distinct tests of a text; BadReply if their format is invalid."""
    found = _calls_in(problem.function, text) if problem.function else _blocks_in(text)
    tests = tuple(dict.fromkeys(found))
    if not 1 <= len(tests) <= max_tests:
        raise BadReply(f"{len(tests)} tests; give 1 to {max_tests}")
    shown = {case.given.strip() for case in problem.visible}
    if any(test.given.strip() in shown for test in tests):
        raise BadReply("a test repeats the input of a visible one; give tests of your own")
    return tests


def _blocks_in(text: str) -> list[Case]:
    """Blocks of `input:` and `output:`."""
    parts = re.split(r"^(input|output):[ \t]*\n?", text.strip() + "\n", flags=re.MULTILINE)
    labels, bodies = parts[1::2], parts[2::2]
    if parts[0].strip() or labels != ["input", "output"] * (len(labels) // 2):
        raise BadReply("write each test as a line 'input:', its lines, 'output:', its lines")
    return [
        Case(a.rstrip() + "\n", b.rstrip()) for a, b in zip(bodies[::2], bodies[1::2], strict=True)
    ]


def _calls_in(function: str, text: str) -> list[Case]:
    outcome = run_inside("reader", {"function": function, "text": text}, READ_LIMITS)
    try:
        report = json.loads(outcome.stdout)
    except ValueError:
        raise BadReply("the tests cannot be read") from None
    if "refusal" in report:
        raise BadReply(shown(report["refusal"], num_lines=1))
    return [Case(given, expected) for given, expected in report["tests"]]


def shown(text: str, num_lines: int = 8) -> str:
    """Untrusted text sanitized for a prompt: truncated, and without template markers."""
    text = TEMPLATE.sub("?", text)
    lines = text.rstrip("\n").split("\n")
    more = ["..."] if len(lines) > num_lines else []
    return "\n".join([_line(line) for line in lines[:num_lines]] + more)


def _line(line: str) -> str:
    plain = "".join(sign if sign.isprintable() else "?" for sign in line[:MAX_LINE].expandtabs(4))
    return f"{plain}..." if len(line) > MAX_LINE else plain
