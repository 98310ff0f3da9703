"""Files that are read by byte range: on this machine, or through a process that reaches them."""

import os
from pathlib import Path
from typing import Protocol


class RemoteFile(Protocol):
    """A file that another process reads for this one."""

    @property
    def name(self) -> str:
        """Name of the file."""
        ...

    def size(self) -> int:
        """Size in bytes."""
        ...

    def read_into(self, start: int, out: memoryview) -> int:
        """Read bytes from `start` on; their number, which is 0 at the end of the file."""
        ...


Source = Path | RemoteFile
"""Where the bytes of a file are."""


def size_of(source: Source) -> int:
    """Size of a file in bytes."""
    return source.stat().st_size if isinstance(source, Path) else source.size()


def read_exactly(source: Source, start: int, out: memoryview) -> None:
    """Fill memory with the bytes of a file from `start` on; OSError if it ends before."""
    if isinstance(source, Path):
        with source.open("rb", buffering=0) as file:
            _fill(source, start, out, lambda at, left: os.preadv(file.fileno(), [left], at))
    else:
        _fill(source, start, out, source.read_into)


def read_bytes(source: Source, start: int, size: int) -> bytes:
    """Some bytes of a file."""
    found = bytearray(size)
    read_exactly(source, start, memoryview(found))
    return bytes(found)


def _fill(source: Source, start: int, out: memoryview, read: "ReadInto") -> None:
    left = out
    while left:
        count = read(start, left)
        if not count:
            end = start + len(left)
            raise OSError(f"{source} ends before byte {end}; is it truncated?")
        start, left = start + count, left[count:]


class ReadInto(Protocol):
    """Reads bytes from a position on into memory; their number."""

    def __call__(self, start: int, out: memoryview, /) -> int: ...
