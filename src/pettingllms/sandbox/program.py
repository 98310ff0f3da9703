"""Plain data: a sandboxed program, its limits and its outcome."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

End = Literal["exited", "timeout", "memory", "output", "killed"]
"""How a program ended: by itself, or by the limit that it exceeded."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on all processes of a program together."""

    seconds: float = 5.0
    """Wall-clock time."""
    memory_mb: int = 512
    num_processes: int = 32
    """Processes and threads."""
    disk_mb: int = 16
    """Disk space for written files. The files of the program count only beyond whole megabytes."""
    output_kb: int = 64
    """Cap on stdout and on stderr, each."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command, the files in its working folder, and its standard input."""

    command: tuple[str, ...]
    """`python` is the interpreter of the sandbox; other names are looked up in its /usr/bin."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """File contents by relative path."""
    stdin: bytes = b""

    def __post_init__(self) -> None:
        for name in self.files:
            if not name or name.startswith("/") or ".." in name.split("/"):
                raise ValueError(
                    f"got the file name {name!r}; expected a relative path without '..'"
                )
        if not self.command or any("\0" in part for part in (*self.command, *self.files)):
            raise ValueError(
                f"the command {self.command!r} is empty, or it or a file name has a NUL"
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a program. Its output is untrusted: never take a program's word that it
    succeeded, but grade its output outside the sandbox."""

    end: End
    code: int | None
    """Exit code; None if the program was killed."""
    stdout: str
    stderr: str
    seconds: float
    refused: Counter[str] = field(default_factory=Counter)
    """Number of blocked system calls by name; empty if they cannot be counted."""
    cpu_seconds: float | None = None
    """CPU time of all processes, measured at a timeout only."""

    @property
    def ok(self) -> bool:
        """Whether the program exited with code 0. This does not show that its output is correct."""
        return self.end == "exited" and self.code == 0


class Sandbox(Protocol):
    """Runs untrusted programs. Safe for use by several threads."""

    def run(self, program: Program, limits: Limits = ...) -> Outcome:
        """Run a program to its end or to a limit. Failures of the program never raise."""
        ...


def python(source: str, stdin: str = "", files: Mapping[str, bytes] | None = None) -> Program:
    """A Python program that can import only the standard library.

    Lone surrogates are passed through; the interpreter rejects source code that contains one.
    """
    sent = {**(files or {}), "main.py": source.encode("utf-8", "surrogatepass")}
    return Program(("python", "main.py"), sent, stdin.encode("utf-8", "surrogatepass"))
