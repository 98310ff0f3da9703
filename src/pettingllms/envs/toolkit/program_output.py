"""Python programs in replies, and the last line that they print in the sandbox."""

import re
from dataclasses import dataclass
from functools import lru_cache

from pettingllms.envs.toolkit.answers import CLOSE, OPEN, BadReply
from pettingllms.envs.toolkit.sandboxed import run_sandboxed
from pettingllms.sandbox import Limits, python

BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
MAX_LETTERS = 8000
ENDS = {
    "timeout": "took too long",
    "memory": "needed too much memory",
    "output": "printed too much",
}


@dataclass(frozen=True, slots=True)
class Printed:
    """The output of a program: its last line, or why it has none. The line is untrusted."""

    answer: str | None
    note: str = ""


def program_in(reply: str, terse: bool = False) -> str:
    """The program of a reply; BadReply unless there is exactly one."""
    tagged = OPEN in reply or CLOSE in reply
    found = [reply] * (not tagged) if terse else BLOCK.findall(reply)
    if len(found) != 1 or not found[0].strip():
        raise BadReply(f"{len(found)} programs in the reply; give one, as ```python ... ```")
    if len(found[0]) > MAX_LETTERS or "\x00" in found[0]:
        raise BadReply(f"a program has at most {MAX_LETTERS} letters, all of which can be printed")
    return str(found[0])


def as_program(source: str, terse: bool = False) -> str:
    """A reply with only this program."""
    return source if terse else f"```python\n{source}\n```"


@lru_cache(maxsize=512)
def run(source: str, seconds: float, memory_mb: int) -> Printed:
    """Run a program until it ends or hits a limit. Cached, so that forks of an episode agree."""
    outcome = run_sandboxed(python(source), Limits(seconds=seconds, memory_mb=memory_mb))
    if not outcome.ok:
        return Printed(None, ENDS.get(outcome.end) or _error_in(outcome.stderr))
    lines = outcome.stdout.strip().splitlines()
    return Printed(lines[-1]) if lines else Printed(None, "printed nothing")


def _error_in(stderr: str) -> str:
    """The type of the error that ended a program, without its message."""
    last = (stderr.strip().splitlines() or [""])[-1]
    kind = re.match(r"([A-Za-z]{1,40}(?:Error|Exception|Exit|Interrupt))\b", last)
    return f"ended with {kind.group(1)}" if kind else "ended with an error"
