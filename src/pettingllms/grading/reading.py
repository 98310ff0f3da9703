"""Whether two answers are the same: math-verify, and what it needs around it.

Imported by the worker alone: no other process reads what a model wrote as mathematics.
"""

from functools import lru_cache
from typing import Any

from pettingllms.grading.forms import Written, base_in, words_in, written


class MathVerify:
    """math-verify with its own timers off: the worker has one that cannot be caught."""

    def __init__(self) -> None:
        import math_verify
        from latex2sympy2_extended import NormalizationConfig

        how = NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
        )
        self._lib = math_verify
        self._how = [math_verify.LatexExtractionConfig(normalization_config=how)]
        self._truth = lru_cache(maxsize=4096)(self._parsed)
        self.same("\\frac{1}{2}", "0.5")

    def same(self, answer: str, truth: str) -> bool:
        """Whether an answer is the truth, both as they were written."""
        said = words_in(truth)
        if said is not None and words_in(answer) == said:
            return True
        given, right = written(answer), written(truth)
        if given.unit and right.unit and given.unit != right.unit:
            return False
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
        """An expression with `i` worked out: it is left as it was written otherwise."""
        from sympy import Basic, I

        return part.doit() if isinstance(part, Basic) and part.has(I) else part


def _ways(given: Written, right: Written) -> list[tuple[str, str]]:
    """What is compared with what: a percentage is a share, and is also often left without a sign."""
    shown = [f"{side.text}\\%" if side.percent else side.text for side in (given, right)]
    ways = [(shown[0], shown[1])]
    if given.percent != right.percent and (right.percent or not _below_one(given.text)):
        ways.append((given.text, right.text))
    return ways


def _below_one(text: str) -> bool:
    return text.lstrip("-").startswith(("0", "."))
