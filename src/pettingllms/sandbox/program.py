"""What runs in a sandbox, under which limits, and what came of it: plain data."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

End = Literal["exited", "timeout", "memory", "output", "killed"]
"""How a program ended: by itself, or by the limit that it ran into."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use, all of its processes together."""

    seconds: float = 5.0
    """By the clock."""
    memory_mb: int = 512
    num_processes: int = 32
    """Threads count."""
    disk_mb: int = 16
    """All that it writes, and of its own files what is left after whole megabytes."""
    output_kb: int = 64
    """Of stdout and of stderr, each."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command, the files of its working folder, and what it reads."""

    command: tuple[str, ...]
    """`python` is the sandbox's own interpreter; anything else is looked up in its /usr/bin."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """By relative name."""
    stdin: bytes = b""

    def __post_init__(self) -> None:
        for name in self.files:
            if not name or name.startswith("/") or ".." in name.split("/"):
                raise ValueError(f"a file of a program has a relative name, not {name!r}")
        if not self.command or any("\0" in part for part in (*self.command, *self.files)):
            raise ValueError(f"no command can be made of {self.command!r}, or no file of a name")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What can be said of a program that has ended. Nothing in here is true because it says so:
    stdout is what the program wrote, and grading happens outside."""

    end: End
    code: int | None
    """Exit code; None if a limit ended it."""
    stdout: str
    stderr: str
    seconds: float
    refused: Counter[str] = field(default_factory=Counter)
    """System calls that the sandbox refused, by name; empty where they cannot be counted."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0, which says nothing about what it did."""
        return self.end == "exited" and self.code == 0


class Sandbox(Protocol):
    """Runs programs that nobody trusts. May be used by many threads at once."""

    def run(self, program: Program, limits: Limits = ...) -> Outcome:
        """Run to the end, or to a limit. What the program does is in the outcome, never raised."""
        ...


def python(source: str, stdin: str = "", files: Mapping[str, bytes] | None = None) -> Program:
    """A Python program, with nothing but the standard library.

    A lone surrogate is sent as it is: Python refuses the source that holds one.
    """
    sent = {**(files or {}), "main.py": source.encode("utf-8", "surrogatepass")}
    return Program(("python", "main.py"), sent, stdin.encode("utf-8", "surrogatepass"))
