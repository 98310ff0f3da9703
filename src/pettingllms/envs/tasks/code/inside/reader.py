"""Parse model-written tests: one `f(...) == value` per line, literals only.

Parsing Python can exhaust the process, so it happens in a sandbox that contains no solution.
Anything but a literal is rejected: it would run beside the known solutions.
"""

import ast
import json
import os
import sys

sys.path.insert(0, os.getcwd())  # noqa: PTH109
import wire  # type: ignore[import-not-found]


def main() -> None:
    """Parse the tests of the job, or report why they are invalid."""
    with open("job.json", encoding="utf-8") as file:  # noqa: PTH123
        job = json.load(file)
    tests = []
    try:
        for line in job["text"].splitlines():
            if line.strip() and not line.strip().startswith("#"):
                tests.append(read(line.strip(), job["function"]))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        sys.stdout.write(json.dumps({"refusal": f"{line.strip()[:80]!r}: {error}"}))
        return
    sys.stdout.write(json.dumps({"tests": tests}))


def read(line: str, function: str) -> list[str]:
    """Call and expected value of one test."""
    statements = ast.parse(line).body
    if len(statements) != 1:
        raise ValueError("one test stands on a line")
    test = getattr(statements[0], "test", getattr(statements[0], "value", None))
    if not isinstance(test, ast.Compare) or [type(op) for op in test.ops] != [ast.Eq]:
        raise ValueError(f"write {function}(...) == value")
    call = test.left
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != function:
        raise ValueError(f"on the left stands one call of {function}")
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        ast.literal_eval(argument)
    if any(keyword.arg is None for keyword in call.keywords):
        raise ValueError("arguments are plain values")
    return [ast.unparse(call), str(wire.encode(ast.literal_eval(test.comparators[0])))]


main()
