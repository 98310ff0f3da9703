"""Splits asserts of data sets into a call and its expected value.

The value stays outside the sandbox, where no solution can read it. Only direct calls of the
function are split: in `abs(f(2) - 4) < 0.1` the value would be `True`, which is easy to guess. The
text comes from the data set, never from a model.
"""

import ast
import doctest
import warnings
from collections.abc import Iterable

from pettingllms.datasets.code_problems import Case
from pettingllms.datasets.wire import encode


def parsed(text: str) -> ast.Module:
    """Parse Python of a data set without warnings; SyntaxError if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.parse(text)


def cases_in(asserts: Iterable[str], function: str) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """Tests that are a call and a value, and all others; SyntaxError if not Python."""
    cases, others = [], []
    for text in asserts:
        for statement in parsed(text).body:
            case = case_of(statement, function)
            if case is None:
                others.append(text)
                break
            cases.append(case)
    return tuple(cases), tuple(others)


def case_of(statement: ast.stmt, function: str, called: str = "") -> Case | None:
    """An assert as call and value, if possible. `called` is its name for the function."""
    if not isinstance(statement, ast.Assert):
        return None
    test = statement.test
    called = called or function
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if not isinstance(test.ops[0], ast.Eq | ast.Is):
        return None
    return _case(test.left, test.comparators[0], function, called)


def _case(left: ast.expr, right: ast.expr, function: str, called: str) -> Case | None:
    if not _calls(left, called):
        left, right = right, left
    if not _calls(left, called):
        return None
    assert isinstance(left, ast.Call)  # noqa: S101 - see `_calls`
    try:
        expected = encode(ast.literal_eval(right))
    except (ValueError, TypeError):
        return None
    left.func = ast.Name(function, ast.Load())
    return Case(ast.unparse(left), expected)


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def checks_in(test: str, function: str) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """The tests of HumanEval's `check(candidate)`: cases, and one check with all others."""
    tree = parsed(test)
    check = next(
        (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "check"), None
    )
    if check is None or len(check.args.args) != 1:
        raise ValueError("a test needs `def check(candidate)`")
    called = check.args.args[0].arg
    local = {n.id for n in ast.walk(check) if isinstance(n, ast.Name) and n.id != called}
    cases = [
        (None if _names(statement) & local else case_of(statement, function, called), statement)
        for statement in check.body
    ]
    rest = [statement for case, statement in cases if case is None and not _trivial(statement)]
    if not any(isinstance(node, ast.Assert) for one in rest for node in ast.walk(one)):
        rest = []
    split = tuple(case for case, _ in cases if case is not None)
    if not rest:
        return split, ()
    check.body = rest
    return split, (f"{ast.unparse(tree)}\ncheck({function})",)


def _names(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _trivial(statement: ast.stmt) -> bool:
    """Whether the assert holds for every function: `assert True`, or a string."""
    value = statement.test if isinstance(statement, ast.Assert) else None
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(value, ast.Constant) and bool(value.value)


def examples_in(source: str, function: str) -> tuple[Case, ...]:
    """The examples of its docstring (`>>> f(2)`, then `4`) that are a call and a value."""
    functions = [node for node in parsed(source).body if isinstance(node, ast.FunctionDef)]
    texts = [ast.get_docstring(node) or "" for node in functions if node.name == function]
    try:
        examples = doctest.DocTestParser().get_examples("\n".join(texts))
    except ValueError:
        return ()
    found = (_example(one.source, one.want, function) for one in examples)
    return tuple(case for case in found if case is not None)


def _example(source: str, want: str, function: str) -> Case | None:
    try:
        call, value = ast.parse(source, mode="eval").body, ast.parse(want.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return _case(call, value, function, function) if _calls(call, function) else None


def names_called(text: str) -> tuple[str, ...]:
    """All plain names that are called, outermost and leftmost first."""
    calls = (node for node in ast.walk(parsed(text)) if isinstance(node, ast.Call))
    return tuple(node.func.id for node in calls if isinstance(node.func, ast.Name))


def names_defined(source: str) -> tuple[str, ...]:
    """The functions and classes at the top of a program."""
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    return tuple(node.name for node in parsed(source).body if isinstance(node, kinds))


def without(source: str, function: str) -> str:
    """A program without one of its functions: the rest that a statement provides."""
    tree = parsed(source)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef) and node.name == function)
    ]
    return ast.unparse(tree)
