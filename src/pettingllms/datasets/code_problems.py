"""Programming problems: a statement, visible tests and hidden tests.

There are two kinds. A program reads stdin and writes stdout. A function is called: a test is a call
as Python text and the expected value in wire format. A test that has another form is a check: code
of the data set that raises if the function is wrong.
"""

import re
from dataclasses import dataclass

from pettingllms.datasets.wire import decode

WORDS = re.compile(r"\w+|[-+*/%^=<>&|~]")
MAX_CASE_MB, MAX_TESTS_MB = 8, 64
"""Size limits of expected values, per test and per problem: they are held in memory."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test."""

    given: str
    """Standard input of the program, or the call of the function."""
    expected: str
    """Standard output of the program, or the value in wire format."""
    also: str = ""
    """An alternative correct value, if there is one."""

    def describe(self, calls: bool) -> str:
        """The test as roles read and write it."""
        if calls:
            return f"{self.given} == {decode(self.expected)!r}"
        return f"input:\n{self.given.rstrip()}\noutput:\n{self.expected.rstrip()}"


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """One problem, with all that grading needs."""

    name: str
    statement: str
    function: str = ""
    """Name of the function; empty if the problem asks for a program."""
    visible: tuple[Case, ...] = ()
    hidden: tuple[Case, ...] = ()
    checks: tuple[str, ...] = ()
    """Hidden tests without call and value. Each is self-contained and names the function."""
    setup: str = ""
    """Code before a solution: imports and definitions of the statement."""
    fixture: str = ""
    """Code before a call: definitions for its arguments."""
    loose: bool = False
    """Whether tuples and lists are equal."""
    good: tuple[str, ...] = ()
    """Known correct solutions."""
    bad: tuple[str, ...] = ()
    """Known wrong solutions."""

    @property
    def id(self) -> str:
        """The name, as other questions call it."""
        return self.name

    def key(self) -> str:
        """The statement without spacing, case and punctuation; `a + b` differs from `a - b`."""
        return " ".join(WORDS.findall(self.statement.lower()))

    def check_sizes(self) -> None:
        """Raise ValueError if expected values exceed the size limits."""
        tests = (*self.visible, *self.hidden)
        sizes = [len(f"{case.expected}{case.also}".encode(errors="replace")) for case in tests]
        if max(sizes, default=0) > MAX_CASE_MB << 20 or sum(sizes) > MAX_TESTS_MB << 20:
            raise ValueError(
                f"a test expects {max(sizes):,} bytes and all of them {sum(sizes):,}; a problem "
                f"may have {MAX_CASE_MB} MB in a test and {MAX_TESTS_MB} MB in all"
            )
