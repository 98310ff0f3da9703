"""The reference of every public name, made from the code.

A name is public if it is in `__all__` of `pettingllms`, of a package in it or of a module beside.
What is said here are the signature and the words that stand in the code, so neither can go stale.
"""

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from pydantic import BaseModel

import pettingllms

HIDDEN = ("__main__", "cli")
"""Run, not imported."""
INNER = (
    "envs.single_turn",
    "inference.engines",
    "learners.losses",
    "runs.callbacks",
    *(f"training.{name}" for name in ("train", "sft", "dpo", "evaluate", "collect", "export")),
)
"""Modules inside packages that have public names."""
INTRODUCTION = """\
Made by `python docs/make_reference.py`. What stands here may be relied on; any other name may
change. What `pettingllms` itself has is there after `import pettingllms as pl`, as `pl.NAME`."""


def names_page() -> str:
    """The whole page."""
    parts = [
        "# Public names",
        INTRODUCTION,
        "\n".join(_short_list()),
        *(_section(module) for module in public_modules()),
    ]
    return "\n\n".join(parts) + "\n"


def public_modules() -> list[ModuleType]:
    """Packages and modules that say what is public in them."""
    top = pkgutil.iter_modules(pettingllms.__path__, "pettingllms.")
    names = [info.name for info in top if info.name.rpartition(".")[2] not in HIDDEN]
    names += [f"pettingllms.{name}" for name in INNER]
    return [module for module in map(import_module, names) if hasattr(module, "__all__")]


def _short_list() -> Iterator[str]:
    yield "## pettingllms"
    yield ""
    yield "| name | home |"
    yield "| --- | --- |"
    for name in sorted(set(pettingllms.__all__) - {"__version__"}, key=str.lower):
        value = getattr(pettingllms, name)
        home = next(m for m in public_modules() if name in m.__all__ and getattr(m, name) is value)
        anchor = _title(home, name).lower().replace(".", "")
        yield f"| [`{name}`](#{anchor}) | `{home.__name__}` |"
    yield "| `__version__` | `pettingllms` |"


def _title(module: ModuleType, name: str) -> str:
    return f"{module.__name__.removeprefix('pettingllms.')}.{name}"


def _section(module: ModuleType) -> str:
    parts = [f"## {module.__name__}", _words(module)]
    for name in module.__all__:
        parts.append(f"### {_title(module, name)}")
        parts += list(_described(module, name, getattr(module, name)))
    return "\n\n".join(part for part in parts if part)


def _described(module: ModuleType, name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value) and getattr(value, "__module__", "").startswith("pettingllms"):
        yield _code(f"class {name}{_bases(value)}")
        yield _words(value)
        yield "\n".join(_members(value))
    elif inspect.isfunction(value):
        yield _code(f"{name}{_signature(_tree(value))}")
        yield _words(value)
    else:
        yield _code(_assigned(module, name))
        yield _under(_home_of(module, name), name)


def _bases(cls: type) -> str:
    kept = [base.__name__ for base in cls.__bases__ if base is not object]
    return f"({', '.join(kept)})" if kept else ""


def _members(cls: type) -> Iterator[str]:
    """What a class itself adds: fields and methods. Options are in the other reference."""
    if issubclass(cls, BaseModel):
        yield "Its keys: [configuration](configuration.md)."
        return
    for node, under in _documented(_tree(cls).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
            name, words = node.name, ast.get_docstring(node) or ""
            shown = name if "property" in marks else f"{name}{_signature(node)}"
        elif isinstance(node, ast.AnnAssign):
            name, words = ast.unparse(node.target), under
            shown = ast.unparse(node).partition(" = ")[0]
        else:
            continue
        if not name.startswith("_") and (words or isinstance(node, ast.AnnAssign)):
            yield f"- `{shown}`" + (f": {_first(words)}" if words else "")


def _documented(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Statements, each with the string that stands under it."""
    for at, node in enumerate(body):
        after = body[at + 1] if at + 1 < len(body) else None
        told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        yield node, str(after.value.value) if told else ""


def _home_of(module: ModuleType, name: str) -> ModuleType:
    """The module that assigns a name which another one passes on."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return _home_of(import_module(str(node.module)), name)
    return module


def _assigned(module: ModuleType, name: str) -> str:
    for node in ast.parse(inspect.getsource(_home_of(module, name))).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            whole = ast.unparse(node)
            return whole if len(whole) <= 120 else f"{name}: {type(getattr(module, name)).__name__}"
    raise AssertionError(f"{module.__name__}.{name} is assigned nowhere")


def _under(module: ModuleType, name: str) -> str:
    for node, words in _documented(ast.parse(inspect.getsource(module)).body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return _plain(words)
    return ""


def _tree(value: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    given = node.args
    given.args = [one for one in given.args if one.arg not in ("self", "cls")]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(given)}){returns}"


def _code(text: str) -> str:
    return f"```text\n{text}\n```"  # a formatter would rewrite what is marked as Python


def _words(value: Any) -> str:
    return _plain(inspect.getdoc(value) or "")


def _plain(text: str) -> str:
    """Words as they are, with lines that were broken to fit joined."""
    blocks = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(block.split()) for block in blocks).strip()


def _first(text: str | None) -> str:
    return _plain(text or "").partition("\n\n")[0]
