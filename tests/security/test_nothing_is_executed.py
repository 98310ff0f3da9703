"""Nothing that came from outside can be executed: no file of the package names what could.

What a model wrote is run in the sandbox alone, so only what runs inside it, or reads back bytes
that it made itself, may name such things; and only a few files may start a process at all.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "pettingllms"
EXECUTE = {
    "__import__", "builtins.compile", "builtins.eval", "builtins.exec", "cloudpickle.load",
    "cloudpickle.loads", "code.InteractiveConsole", "code.InteractiveInterpreter",
    "code.interact", "compile", "dill.load", "dill.loads", "eval", "exec",
    "joblib.load", "jsonpickle.decode", "marshal.load", "marshal.loads", "numexpr.evaluate",
    "os.popen", "os.system", "pandas.eval", "pandas.read_pickle", "pickle.Unpickler",
    "pickle.load", "pickle.loads", "pty.spawn", "runpy.run_module", "runpy.run_path",
    "shelve.open", "subprocess.getoutput", "subprocess.getstatusoutput", "timeit.timeit",
    "torch.load", "yaml.full_load", "yaml.load", "yaml.unsafe_load",
}  # fmt: skip
PARSE = {"latex2sympy2", "latex2sympy2_extended", "math_verify", "sympy"}
"""Packages that turn text into calls: only sandboxed code parses model output with them."""
START = {
    "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "os.execl", "os.execle",
    "os.execlp", "os.execv", "os.execve", "os.execvp", "os.execvpe", "os.fork", "os.forkpty",
    "os.posix_spawn", "os.posix_spawnp", "os.spawnl", "os.spawnv", "os.spawnve", "pty.fork",
    "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
    "subprocess.run",
}  # fmt: skip

INSIDE = {
    "envs/drafts/child.py",  # the process of a draft, which is sandboxed before it reads one
    "envs/tasks/code/inside/checker.py",
    "envs/tasks/code/inside/driver.py",
    "grading/reading.py",  # for the grader's processes, which are closed before they read
    "sandbox/enter.py",
    "sandbox/inside.py",
}
"""Run in the sandbox, or make it; no process of ours imports them."""
APART = {"envs/drafts/child.py", "grading/isolation.py", "grading/worker.py"}
"""The main modules of other processes, which may import what runs there."""
OWN_BYTES = {("envs/contract.py", "pickle.loads"), ("envs/check_start.py", "pickle.loads")}
"""The checks of an environment read back bytes that they made themselves a line before."""
STARTERS = {
    "envs/drafts/check.py",  # the sandboxed process of a draft
    "bench/process.py",  # our own module in a separate process
    "cli/serve_env.py",  # the same command in the virtual environment of OpenEnv
    "preflight/machine.py",  # nvidia-smi
    "envs/toolkit/process.py",  # a workflow's program, which is its user's own
    "grading/grader.py",  # the grader's processes
    "models/smollm2.py",  # pip, to fetch a package's file
    "runtime/json_child.py",  # the virtual environment of verifiers, which the user names
    "sandbox/box.py",  # the sandbox
}


def imports_of(tree: ast.AST) -> dict[str, str]:
    """What the names of a file stand for, as far as they were imported."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def names_in(text: str) -> set[str]:
    """Every name that a file uses, called or not, under the name that it was imported by."""
    tree = ast.parse(text)
    imported = imports_of(tree)
    found = set(imported.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            first, dot, rest = ast.unparse(node).partition(".")
            found.add(imported.get(first, first) + dot + rest)
        if isinstance(node, ast.keyword) and ast.unparse(node.value) != "False":
            found.add(f"{node.arg}=True")
    return found


def forbidden_in(text: str) -> set[str]:
    names = names_in(text)
    parsers = {name for name in names if name.split(".")[0] in PARSE}
    return names & (EXECUTE | {"shell=True", "allow_pickle=True"}) | parsers


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_file_names_what_executes_text(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    found = {(name, each) for each in forbidden_in(path.read_text())}
    assert name in INSIDE | APART or found <= OWN_BYTES
    starts = names_in(path.read_text()) & START
    assert name in INSIDE | APART | STARTERS or not starts


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_other_module_imports_what_runs_inside(path: Path) -> None:
    inside = {f"pettingllms.{name[:-3].replace('/', '.')}" for name in INSIDE | APART}
    found = {name for name in names_in(path.read_text()) if name.startswith(tuple(inside))}
    assert not found or str(path.relative_to(SOURCE)) in APART


def test_the_exceptions_are_still_needed() -> None:
    for name in INSIDE:
        assert forbidden_in((SOURCE / name).read_text()), name
    for name in APART - INSIDE | STARTERS:
        assert names_in((SOURCE / name).read_text()) & START, name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x): return eval(x)", {"eval"}),
        ("list(map(exec, x))", {"exec"}),
        ("import pickle\npickle.loads(x)", {"pickle.loads"}),
        ("import pickle as p\np.loads(x)", {"pickle.loads"}),
        ("from pickle import loads as read\nread(x)", {"pickle.loads"}),
        ("from sympy.parsing.sympy_parser import parse_expr", {
            "sympy.parsing.sympy_parser.parse_expr"
        }),
        ("import sympy\nsympy.sympify(x)", {"sympy", "sympy.sympify"}),
        ("import subprocess\nsubprocess.run(x, shell=True)", {"shell=True"}),
        ("import numpy as np\nnp.load(x, allow_pickle=True)", {"allow_pickle=True"}),
        ("import re\nmodel.eval()\nre.compile(x)", set()),
    ],
)  # fmt: skip
def test_the_look_for_names_finds_them(text: str, found: set[str]) -> None:
    assert forbidden_in(text) == found
