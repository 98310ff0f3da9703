"""Nothing that came from outside can be executed: there is no call in the package that could."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "pettingllms"
FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "yaml.load",
    "sympy.sympify",
    "parse_expr",
}
ALLOWED = {
    ("envs/check.py", "pickle.loads"),
    ("envs/code/inside/checker.py", "exec"),
    ("envs/code/inside/driver.py", "compile"),
    ("envs/code/inside/driver.py", "eval"),
    ("envs/code/inside/driver.py", "exec"),
}
"""`check_env` reads back bytes that it made itself a line before. What is called `inside` is sent
into a sandbox as text and runs there alone."""


def calls_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_call_executes_text(path: Path) -> None:
    found = {(str(path.relative_to(SOURCE)), call) for call in calls_in(path) & FORBIDDEN}
    assert found <= ALLOWED


def test_the_look_for_calls_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import pickle\ndef f(x):\n    return eval(x), pickle.loads(x)\n")
    assert calls_in(path) & FORBIDDEN == {"eval", "pickle.loads"}


def test_what_runs_inside_is_imported_by_nothing() -> None:
    for path in FILES:
        tree = ast.parse(path.read_text())
        named = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        named |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not [name for name in named if "inside" in name.split(".")], path
