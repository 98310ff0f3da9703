"""The core imports no module that only Linux has: macOS and Windows can use it.

Two checks: the graph of imports that run when a module is imported, read from the sources, and the
core in a process in which our code cannot import such modules.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
NOT_EVERYWHERE = {
    *("fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "spwd", "syslog", "termios"),
    *("tty", "_posixsubprocess", "curses"),
}
CORE = (
    *("pettingllms", "pettingllms.__main__", "pettingllms.cli.main", "pettingllms.types"),
    *("pettingllms.config", "pettingllms.envs", "pettingllms.algos", "pettingllms.judges"),
    *("pettingllms.rollouts", "pettingllms.runs", "pettingllms.league", "pettingllms.datasets"),
    *("pettingllms.exploitability", "pettingllms.registry", "pettingllms.training.collect"),
    *("pettingllms.viewer.page", "pettingllms.viewer.server", "pettingllms.viewer.sources"),
    *("pettingllms.experiments.curves", "pettingllms.experiments.run_report"),
    *("pettingllms.cli.rollout", "pettingllms.cli.play", "pettingllms.cli.envs"),
    *("pettingllms.cli.view", "pettingllms.cli.plot", "pettingllms.cli.episodes"),
    *("pettingllms.launch.plan", "pettingllms.hub.facts"),
)
"""What works without engines."""


@cache
def file_of(module: str) -> Path | None:
    place = SOURCE.joinpath(*module.split("."))
    found = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in found if file.is_file()), None)


def imports(tree: ast.AST, module: str) -> list[str]:
    """Modules that are imported when a module is: not in functions, and not for types."""
    found: list[str] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append(str(node.module))
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found += imports(node, module)
    return found


def offenders(roots: tuple[str, ...]) -> dict[str, str]:
    """Modules that the roots import, of those that only Linux has, with the importer."""
    found, seen, waiting = {}, set(roots), list(roots)
    while waiting:
        module = waiting.pop()
        file = file_of(module)
        assert file is not None, module
        for name in imports(ast.parse(file.read_text(encoding="utf-8")), module):
            if name.split(".")[0] in NOT_EVERYWHERE:
                found[f"{module} imports {name}"] = name
            parts = name.split(".")
            for inner in (".".join(parts[:end]) for end in range(1, len(parts) + 1)):
                if parts[0] == "pettingllms" and inner not in seen and file_of(inner):
                    seen.add(inner)
                    waiting.append(inner)
    return found


def test_core_imports_no_module_that_only_linux_has() -> None:
    assert offenders(CORE) == {}


def test_such_an_import_is_found() -> None:
    assert "pettingllms.grading.worker imports resource" in offenders(
        ("pettingllms.grading.worker",)
    )


ELSEWHERE = f"""\
import importlib.abc, sys

class Elsewhere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {NOT_EVERYWHERE!r}:
            frame = sys._getframe(1)
            while frame and "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            if frame and str(frame.f_globals.get("__name__")).startswith("pettingllms"):
                raise ModuleNotFoundError(f"No module named '{{name}}' on this platform")

for name in {NOT_EVERYWHERE!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Elsewhere())
"""


def elsewhere(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    whole = f"{ELSEWHERE}\n{code}"
    command = [sys.executable, "-c", whole]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [["--help"], ["list", "envs"], ["rollout", "plan_path_team", "--out", "out"]],
    ids=lambda words: words[0],
)
def test_commands_of_the_core_run_without_them(words: list[str], tmp_path: Path) -> None:
    code = f"sys.argv = ['pettingllms', *{words!r}]; from pettingllms.cli.main import main; main()"
    done = elsewhere(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_our_code_cannot_import_them_there(tmp_path: Path) -> None:
    done = elsewhere("import pettingllms.grading.worker", tmp_path)
    assert "No module named 'resource' on this platform" in done.stderr
