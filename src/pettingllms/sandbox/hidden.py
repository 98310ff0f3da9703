"""Installed software that a sandbox hides: Python packages, including this one, and data folders.

A program needs only an interpreter with its standard library and the tools in /usr/bin. Packages
can contain the answers to the tasks that the program has to solve, as this one does.
"""

import os
import sys
from functools import cache
from pathlib import Path

PACKAGES = ("site-packages", "dist-packages")
DATA = ("/usr/src", "/usr/local/src", "/usr/local/share", "/usr/local/data", "/usr/local/etc")
"""Common locations of data next to installed software."""
NEEDED = (
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/local/lib",
)
"""Never hidden, even if this interpreter imports from there, as from the folder of a script."""
MODELS = "PETTINGLLMS_MODELS"
SKIPPED = {
    "bash-completion", "doc", "firmware", "fonts", "gcc", "icons", "include", "info", "lintian",
    "locale", "man", "modules", "perl", "perl5", "terminfo", "zoneinfo",
}  # fmt: skip
"""Names of large system folders that contain no Python packages."""
DEPTH = 7


@cache
def hidden_folders(shown: tuple[str, ...]) -> tuple[str, ...]:
    """The folders below `shown` to hide. No result is inside another."""
    roots = [Path(path) for path in shown]
    wanted = [Path(path).resolve() for path in (*DATA, *_private_paths())]
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
        and _is_not_empty(path)
    }
    return tuple(sorted(one for one in below if not any(_inside(one, other) for other in below)))


def _private_paths() -> list[str]:
    """This package, all other import paths of this interpreter, models and virtual environments."""
    standard = {str(Path(os.__file__).parent), str(Path(os.__file__).parent / "lib-dynload")}
    found = [str(Path(__file__).parents[1])]
    found += [path for path in sys.path if path and path not in standard]
    found += [os.environ[MODELS]] if os.environ.get(MODELS) else []
    if sys.prefix != sys.base_prefix:
        found.append(sys.prefix)
    return found


def _packages(root: Path) -> list[Path]:
    """All folders of installed packages below a root."""
    found: list[Path] = []
    waiting = [(str(root), 0)]
    while waiting:
        folder, depth = waiting.pop()
        in_python = os.path.basename(folder).startswith("python")  # noqa: PTH119 - thousands of them
        for entry in _folders(folder):
            if entry.name in PACKAGES:
                found.append(Path(entry.path))
            elif depth < DEPTH and not in_python and entry.name not in SKIPPED:
                waiting.append((entry.path, depth + 1))
    return found


def _folders(path: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # not readable for this user, so not for the sandbox either
        return []


def _is_not_empty(path: Path) -> bool:
    try:
        return any(path.iterdir())
    except OSError:  # not a folder, or not readable
        return False


def _inside(path: str, other: str) -> bool:
    return path.startswith(other + "/")
