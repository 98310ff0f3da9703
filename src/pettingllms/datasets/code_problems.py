"""Programming problems: what to write, tests that are shown, tests that are not.

There are two kinds. A program reads stdin and writes stdout. A function is called, and a test is a
call as Python text with the value that it must give, kept as it is on the wire. A test that cannot
be put so is a check: a piece of the data set's own code that raises if the function is wrong.
"""

from dataclasses import dataclass

from pettingllms.datasets.wire import decode

MAX_CASE_MB, MAX_TESTS_MB = 8, 64
"""What one test may expect, and all tests of a problem together: answers are held in memory."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test."""

    given: str
    """What the program reads, or the call of the function."""
    expected: str
    """What the program writes, or the value on the wire."""
    also: str = ""
    """Another value that is as good, if there is one."""

    def told(self, calls: bool) -> str:
        """The test as a role reads and writes it."""
        if calls:
            return f"{self.given} == {decode(self.expected)!r}"
        return f"input:\n{self.given.rstrip()}\noutput:\n{self.expected.rstrip()}"


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """One problem, with all that grading needs."""

    name: str
    statement: str
    function: str = ""
    """Its name; empty if a program is asked for."""
    visible: tuple[Case, ...] = ()
    hidden: tuple[Case, ...] = ()
    checks: tuple[str, ...] = ()
    """Hidden tests that are no call and value. Each stands alone and names the function."""
    setup: str = ""
    """Code that goes before a solution: imports and what the statement gives."""
    fixture: str = ""
    """Code that goes before a call: what its arguments are made of."""
    loose: bool = False
    """Whether a tuple is as good as a list."""
    good: tuple[str, ...] = ()
    """Solutions that are known to be right."""
    bad: tuple[str, ...] = ()
    """Solutions that are known to be wrong."""

    def check_sizes(self) -> None:
        """Raise ValueError if the tests expect more than a program is given room to say."""
        tests = (*self.visible, *self.hidden)
        sizes = [len(f"{case.expected}{case.also}".encode(errors="replace")) for case in tests]
        if max(sizes, default=0) > MAX_CASE_MB << 20 or sum(sizes) > MAX_TESTS_MB << 20:
            raise ValueError(
                f"a test expects {max(sizes):,} bytes and all of them {sum(sizes):,}; a problem "
                f"may have {MAX_CASE_MB} MB in a test and {MAX_TESTS_MB} MB in all"
            )
