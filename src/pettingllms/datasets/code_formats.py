"""Programming data sets in their published formats.

| data set | recognized by | published as |
| --- | --- | --- |
| APPS | `input_output` | Hendrycks et al., 2021: JSON lines, with JSON inside of JSON |
| CodeContests | `public_tests` | Li et al., 2022: Parquet or JSON lines |
| LiveCodeBench | `public_test_cases` | Jain et al., 2024: JSON lines, private tests packed |
| HumanEval | `entry_point` | Chen et al., 2021: gzipped JSON lines |
| MBPP | `test_list` | Austin et al., 2021: JSON lines, or a JSON list if sanitized |

Rows without tests are left out, and those with numbers that Python cannot convert: solutions to
them could not be graded.
"""

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from pettingllms.datasets.asserts import (
    cases_in,
    checks_in,
    examples_in,
    names_called,
    names_defined,
    without,
)
from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.datasets.rows import rows_of
from pettingllms.datasets.wire import encode
from pettingllms.errors import DataError

MAX_BYTES = 256 * 1024 * 1024
"""Maximum unpacked size, against decompression bombs."""
MAX_DIGITS = 4000
"""Maximum digits of a number in a test; Python refuses to convert more than 4300."""
TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def unpack_text(packed: str) -> str:
    """The text; ValueError if it is packed in another format, or is not text."""
    try:
        unpacker = zlib.decompressobj()
        pickled = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not base64 of zlib: {error}") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {MAX_BYTES} bytes")
    steps = [(step.name, argument) for step, argument, _ in pickletools.genops(pickled)]
    texts = [argument for name, argument in steps if name in TEXTS]
    others = {name for name, _ in steps} - TEXTS - AROUND
    if len(texts) != 1 or others:
        raise ValueError(f"the pickle holds more than one text: {sorted(others)}")
    return str(texts[0])


NUM_VISIBLE = 2
"""Visible tests if the data set does not specify them, at most half of all tests."""
PYTHON_3 = 3
"""CodeContests' number for the language."""
IMPORTS = "from typing import *\nfrom collections import *\nimport collections, heapq, math"
"""Imports that LiveCodeBench and APPS assume in a function."""


@lru_cache(maxsize=16)
def read_problems(source: str, part: str = "train") -> tuple[CodeProblem, ...]:
    """All problems of a source in any known format."""
    problems: dict[str, CodeProblem] = {}
    for row in rows_of(source, part, "code"):
        read = next((read for key, read in FORMATS.items() if key in row.values), None)
        if read is None:
            known = ", ".join(sorted(FORMATS))
            raise row.wrong(f"none of {known} among its fields {sorted(map(str, row.values))}")
        try:
            problem = read(_Fields(row.values))
            if problem is not None:
                problem.check_sizes()
        except (ValueError, SyntaxError, RecursionError) as error:
            raise row.wrong(str(error)) from None
        if problem is None:
            continue
        if problem.name in problems:
            raise row.wrong(f"a second problem called '{problem.name}'")
        problems[problem.name] = problem
    if not problems:
        raise DataError(f"{source}: has no problem with a test")
    return tuple(problems.values())


class _TooLongError(ValueError):
    """A number with more digits than Python converts; a few problems of APPS have one."""


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _TooLongError(f"a number has {len(digits)} digits; at most {MAX_DIGITS} are read")
    return int(digits)


def _reject(what: str) -> NoReturn:
    raise ValueError(what)


class _Fields:
    """A row with typed access to its fields."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def text(self, *names: str, default: str | None = None) -> str:
        for name in names:
            if isinstance(value := self._row.get(name), str | int):
                return str(value)
            if value is not None:
                _reject(f"'{name}' is a {type(value).__name__}; a text was expected")
        if default is None:
            _reject(f"'{names[0]}' is missing; a text was expected")
        return default

    def texts(self, name: str) -> list[str]:
        return _texts(self._row.get(name) or [], name)

    def table(self, name: str) -> "_Fields":
        value = self._row.get(name) or {}
        if not isinstance(value, Mapping):
            _reject(f"'{name}' is a {type(value).__name__}; an object was expected")
        return _Fields(value)

    def items(self, name: str) -> list[Any]:
        value = self._row.get(name)
        if not isinstance(value, list):
            what = "missing" if value is None else f"a {type(value).__name__}"
            _reject(f"'{name}' is {what}; a list was expected")
        return value

    def nested(self, name: str) -> Any:
        """The parsed JSON text of a field; None if the text is empty."""
        text = self.text(name, default="")
        try:
            return json.loads(text, parse_int=_int) if text.strip() else None
        except _TooLongError:
            raise
        except ValueError as error:
            raise ValueError(f"'{name}' should hold JSON: {error}") from None


def _texts(value: object, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        _reject(f"'{name}' should be a list of texts")
    return value


def _shared(cases: Iterable[Case]) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Visible and hidden tests, without duplicates."""
    unique = tuple(dict.fromkeys(cases))
    num_visible = min(NUM_VISIBLE, len(unique) // 2)
    return unique[:num_visible], unique[num_visible:]


def _call(function: str, arguments: Iterable[object]) -> str:
    return f"{function}({', '.join(map(repr, arguments))})"


def _apps(row: _Fields) -> CodeProblem | None:
    try:
        tests = row.nested("input_output")
    except _TooLongError:
        return None
    if not tests:
        return None
    if not isinstance(tests, dict):
        _reject("'input_output' should hold an object with 'inputs' and 'outputs'")
    fields = _Fields(tests)
    inputs, outputs = fields.items("inputs"), fields.items("outputs")
    if len(inputs) != len(outputs):
        _reject(f"{len(inputs)} inputs but {len(outputs)} outputs")
    function = fields.text("fn_name", default="")
    pairs = zip(inputs, outputs, strict=True)
    visible, hidden = _shared(_apps_case(function, given, want) for given, want in pairs)
    if not hidden:
        return None
    starter = row.text("starter_code", default="").strip()
    return CodeProblem(
        name=f"apps-{row.text('problem_id', 'id')}",
        statement=_with_starter(row.text("question"), starter),
        function=function,
        visible=visible,
        hidden=hidden,
        setup=IMPORTS if function else "",
        loose=bool(function),
        good=tuple(_texts(row.nested("solutions") or [], "solutions")),
    )


def _apps_case(function: str, given: object, want: object) -> Case:
    if not function:
        return Case(_lines(given), _lines(want))
    if not isinstance(given, list):
        _reject(f"an input of '{function}' is not a list of arguments: {given!r:.60}")
    alone = isinstance(want, list) and len(want) == 1
    return Case(_call(function, given), encode(want), encode(want[0]) if alone else "")  # type: ignore[index]


def _lines(value: object) -> str:
    """A text, from a string or a list of its lines."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if not isinstance(value, str):
        _reject(f"a test is {value!r:.60}; a text or a list of lines was expected")
    return value


def _with_starter(statement: str, starter: str) -> str:
    return f"{statement.strip()}\n\nBegin with:\n{starter}" if starter else statement.strip()


def _code_contests(row: _Fields) -> CodeProblem | None:
    visible, private, generated = (
        _paired(row.table(f"{kind}_tests")) for kind in ("public", "private", "generated")
    )
    hidden = tuple(case for case in dict.fromkeys(private + generated) if case not in visible)
    if not hidden:
        visible, hidden = _shared(visible)
    if not hidden or row.text("input_file", default="") or row.text("output_file", default=""):
        return None
    return CodeProblem(
        name=row.text("name"),
        statement=row.text("description").strip(),
        visible=visible,
        hidden=hidden,
        good=_in_python(row.table("solutions")),
        bad=_in_python(row.table("incorrect_solutions")),
    )


def _paired(tests: _Fields) -> tuple[Case, ...]:
    inputs, outputs = tests.texts("input"), tests.texts("output")
    if len(inputs) != len(outputs):
        _reject(f"{len(inputs)} inputs but {len(outputs)} outputs")
    return tuple(Case(given, want) for given, want in zip(inputs, outputs, strict=True))


def _in_python(solutions: _Fields) -> tuple[str, ...]:
    sources = solutions.texts("solution")
    languages = solutions.items("language") if sources else []
    if len(sources) != len(languages):
        _reject(f"{len(sources)} solutions but {len(languages)} languages")
    return tuple(s for s, one in zip(sources, languages, strict=True) if one == PYTHON_3)


def _live_code_bench(row: _Fields) -> CodeProblem | None:
    metadata = row.nested("metadata") or {}
    function = _Fields(metadata).text("func_name", default="")
    visible, hidden = (
        tuple(_live_case(function, test) for test in tests)
        for tests in (row.nested("public_test_cases") or [], _private_tests(row))
    )
    hidden = tuple(case for case in dict.fromkeys(hidden) if case not in visible)
    if not hidden:
        visible, hidden = _shared(visible)
    if not hidden:
        return None
    starter = row.text("starter_code", default="").strip()
    return CodeProblem(
        name=f"livecodebench-{row.text('question_id')}",
        statement=_with_starter(row.text("question_content"), starter),
        function=function,
        visible=visible,
        hidden=hidden,
        setup=IMPORTS if function else "",
        loose=bool(function),
    )


def _private_tests(row: _Fields) -> list[Any]:
    text = row.text("private_test_cases", default="").strip()
    try:
        tests = (
            json.loads(text if not text or text[0] in "[{" else unpack_text(text)) if text else []
        )
    except ValueError as error:
        raise ValueError(
            f"'private_test_cases' holds neither JSON nor packed JSON: {error}"
        ) from None
    return _Fields({"private_test_cases": tests}).items("private_test_cases")


def _live_case(function: str, test: object) -> Case:
    if not isinstance(test, dict):
        _reject(f"a test is {test!r:.60}; an object was expected")
    fields = _Fields(test)
    given, want = fields.text("input"), fields.text("output")
    if fields.text("testtype", default="stdin") == "stdin":
        if function:
            _reject(f"a stdin test, but the problem asks for the function '{function}'")
        return Case(given, want)
    if not function:
        _reject("a functional test, but 'metadata' has no 'func_name'")
    try:
        arguments = [json.loads(line) for line in given.split("\n") if line.strip()]
        return Case(_call(function, arguments), encode(json.loads(want)))
    except ValueError as error:
        raise ValueError(f"a functional test should hold JSON: {error}") from None


def _human_eval(row: _Fields) -> CodeProblem:
    function, prompt = row.text("entry_point"), row.text("prompt")
    cases, checks = checks_in(row.text("test"), function)
    if not cases and not checks:
        _reject("'test' asserts nothing")
    tested = {case.given: case for case in cases}
    examples = examples_in(prompt, function)
    visible = tuple(tested.get(case.given, case) for case in examples)  # a test outweighs a text
    return CodeProblem(
        name=row.text("task_id"),
        statement=f"Write this function, whole:\n\n{prompt.strip()}",
        function=function,
        visible=visible,
        hidden=tuple(case for case in dict.fromkeys(cases) if case not in visible),
        checks=checks,
        setup=without(prompt, function),
        good=(prompt + row.text("canonical_solution"),),
    )


def _mbpp(row: _Fields) -> CodeProblem:
    tests = row.texts("test_list") + row.texts("challenge_test_list")
    code = row.text("code").replace("\r\n", "\n")
    fixture = "\n".join([*row.texts("test_imports"), row.text("test_setup_code", default="")])
    if not tests:
        _reject("'test_list' is empty")
    defined = names_defined(code)
    function = next((name for name in names_called(tests[0]) if name in defined), None)
    if function is None:
        _reject(f"'code' defines {list(defined)}, but the test calls none: {tests[0]:.80}")
    cases, checks = cases_in(tests, function)
    unique = tuple(dict.fromkeys(cases))
    return CodeProblem(
        name=f"mbpp-{row.text('task_id')}",
        statement=row.text("text", "prompt").strip(),
        function=function,
        visible=unique[:1] if len(unique) + len(checks) > 1 else (),
        hidden=unique[1:] if len(unique) + len(checks) > 1 else unique,
        checks=checks,
        fixture=fixture.strip(),
        good=(code,),
    )


FORMATS: Mapping[str, Callable[[_Fields], CodeProblem | None]] = {
    "input_output": _apps,
    "public_tests": _code_contests,
    "public_test_cases": _live_code_bench,
    "entry_point": _human_eval,
    "test_list": _mbpp,
}
"""Row parsers, by the field that identifies the format."""
