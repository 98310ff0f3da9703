"""Equality of two math answers, by math-verify and adjustments around it.

Only the worker imports this module: no other process parses model-generated math.
"""

import re
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Any

from pettingllms.grading.forms import SPACE, Written, base_in, words_in, written

DIGITS = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)"
NUMBER = re.compile(DIGITS)
TIMES_TEN = re.compile(
    rf"(?:(?P<front>{DIGITS}){SPACE}(?:\\times|\\cdot|\*){SPACE}|(?P<sign>[-+]?))"
    r"10\s*\^\s*(?P<power>\{\s*[-+]?\d{1,4}\s*\}|[-+]?\d{1,4})"
)
BESIDE = re.compile(rf"(?<![_\d.])\d[\d.]*(?=[^\d.]){SPACE}[\d.]")
"""Two adjacent numbers, which math-verify would add."""
WARM = (
    ("\\frac{1}{2}", "0.5"),
    ("x^2+2x+1", "(x+1)^2"),
    ("\\{1,2\\}", "\\{2,1\\}"),
    ("2\\sqrt{3}", "\\sqrt{12}"),
    ("x \\le 1", "(-\\infty,1]"),
    ("(1,\\frac{\\pi}{2})", "(1,2)"),
    ("3+4i", "4i+3"),
)
"""Parsed before the first fork, so that all children share the parser's caches."""
LATE = (
    "concrete.delta", "integrals.heurisch", "integrals.manualintegrate", "integrals.prde",
    "integrals.quadrature", "logic.algorithms.dpll2", "series.acceleration", "series.aseries",
    "sets.handlers.add", "sets.handlers.issubset", "sets.handlers.mul", "sets.handlers.power",
    "simplify.traversaltools",
)  # fmt: skip
"""Lazy imports of SymPy that must happen before the sandbox closes."""


class MathVerify:
    """math-verify without its timers: the worker has one that cannot be caught."""

    def __init__(self) -> None:
        import math_verify
        from latex2sympy2_extended import NormalizationConfig
        from sympy import I

        how = NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
        )
        self._lib = math_verify
        self._imaginary = I
        self._how = [math_verify.LatexExtractionConfig(normalization_config=how)]
        self._truth = lru_cache(maxsize=4096)(self._parsed)
        for part in LATE:
            import_module(f"sympy.{part}")
        for answer, truth in WARM:
            self.same(answer, truth)

    def same(self, answer: str, truth: str) -> bool:
        """Whether an answer equals the truth, both as written."""
        words = words_in(truth)
        if words is not None and words_in(answer) == words:
            return True
        given, right = written(answer), written(truth)
        if given.unit and right.unit and given.unit != right.unit:
            return False
        if BESIDE.search(given.text):
            return False
        numbers = number_in(given.text), number_in(right.text)
        if given.percent == right.percent and None not in numbers:
            return numbers[0] == numbers[1]
        based = base_in(given.text), base_in(right.text)
        if all(based):
            return based[0] == based[1]
        return any(self._equal(one, other) for one, other in _ways(given, right))

    def _equal(self, given: str, right: str) -> bool:
        return bool(
            self._lib.verify(
                self._truth(right),
                self._parsed(given),
                allow_set_relation_comp=True,
                timeout_seconds=None,
            )
        )

    def _parsed(self, text: str) -> list[Any]:
        found = self._lib.parse(f"${text}$", self._how, parsing_timeout=None)
        return [self._settled(part) for part in found]

    def _settled(self, part: Any) -> Any:
        """The expression with the letter i as the imaginary unit."""
        names = getattr(part, "free_symbols", ())
        units = {name: self._imaginary for name in names if name.name == "i"}
        return part.subs(units).doit() if units else part


def _ways(given: Written, right: Written) -> list[tuple[str, str]]:
    """The values to compare: a percentage is a share, often written without its sign."""
    shown = [f"{side.text}\\%" if side.percent else side.text for side in (given, right)]
    ways = [(shown[0], shown[1])]
    if given.percent != right.percent and (right.percent or not _below_one(given.text)):
        ways.append((given.text, right.text))
    return ways


def number_in(text: str) -> Decimal | None:
    """A plain number: digits, or digits times a power of ten. math-verify would consider all very
    small numbers equal to zero and to each other."""
    text = text.strip()
    if NUMBER.fullmatch(text):
        return Decimal(text)
    if found := TIMES_TEN.fullmatch(text):
        return Decimal(f"{found['front'] or found['sign'] + '1'}E{found['power'].strip('{} ')}")
    return None


def _below_one(text: str) -> bool:
    return text.lstrip("-").startswith(("0", "."))
