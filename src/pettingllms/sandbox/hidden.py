"""What a sandbox does not show of the installed software: packages, this one above all, and data.

A program needs an interpreter with its standard library and the tools in /usr/bin. Packages may
hold the answers to the very tasks that a program is to solve, as this one does.
"""

import os
import sys
from functools import cache
from pathlib import Path

PACKAGES = ("site-packages", "dist-packages")
DATA = ("/usr/src", "/usr/local/src", "/usr/local/share", "/usr/local/data", "/usr/local/etc")
"""Where machines keep data beside software, if there is any."""
NEEDED = (
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/local/lib",
)
"""Never hidden, whatever this interpreter imports from there (a script's own folder, say)."""
MODELS = "PETTINGLLMS_MODELS"
PASSED = {
    "bash-completion", "doc", "firmware", "fonts", "gcc", "icons", "include", "info", "lintian",
    "locale", "man", "modules", "perl", "perl5", "terminfo", "zoneinfo",
}  # fmt: skip
"""Large folders of systems that hold no Python packages, by name."""
DEPTH = 7


@cache
def hidden_folders(shown: tuple[str, ...]) -> tuple[str, ...]:
    """The folders below those that are shown which are to look empty; none is inside another."""
    roots = [Path(path) for path in shown]
    wanted = [Path(path).resolve() for path in (*DATA, *_ours())]
    for root in roots:
        wanted += _packages(root)
    needed = [Path(path) for path in NEEDED]
    for library in ("/usr/lib", "/usr/local/lib"):
        needed += Path(library).glob("python3*")
    below = {
        str(path)
        for path in wanted
        if any(root in path.parents for root in roots)
        and not any(path == one or path in one.parents for one in needed)
        and _holds_something(path)
    }
    return tuple(sorted(one for one in below if not any(_inside(one, other) for other in below)))


def _ours() -> list[str]:
    """This package, everything else that this interpreter can import, models, environments."""
    standard = {str(Path(os.__file__).parent), str(Path(os.__file__).parent / "lib-dynload")}
    found = [str(Path(__file__).parents[1])]
    found += [path for path in sys.path if path and path not in standard]
    found += [os.environ[MODELS]] if os.environ.get(MODELS) else []
    if sys.prefix != sys.base_prefix:
        found.append(sys.prefix)
    return found


def _packages(root: Path) -> list[Path]:
    """Every folder of installed packages below a folder."""
    found: list[Path] = []
    waiting = [(str(root), 0)]
    while waiting:
        folder, depth = waiting.pop()
        in_python = os.path.basename(folder).startswith("python")  # noqa: PTH119 - thousands of them
        for entry in _folders(folder):
            if entry.name in PACKAGES:
                found.append(Path(entry.path))
            elif depth < DEPTH and not in_python and entry.name not in PASSED:
                waiting.append((entry.path, depth + 1))
    return found


def _folders(path: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # not ours to read, so not the sandbox's either
        return []


def _holds_something(path: Path) -> bool:
    try:
        return any(path.iterdir())
    except OSError:  # it is no folder, or not ours to read
        return False


def _inside(path: str, other: str) -> bool:
    return path.startswith(other + "/")
