"""The ways in which people write one answer, brought to the one that math-verify reads best.

Rules about writing only: nothing here knows what a number is worth. A unit is told apart from the
number before it, because `12 cm` is a length to people and a product of three letters to algebra.
"""

import re
from dataclasses import dataclass

SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "×": "\\times ", "÷": "\\div ", "·": "\\cdot ", "π": "\\pi ",
        "∞": "\\infty ", "°": "^\\circ ", "≤": "\\le ", "≥": "\\ge ", "∪": "\\cup ",
        "∅": "\\emptyset ", "±": "\\pm ", "√": "\\sqrt ", "\u00a0": " ", "\u202f": " ",
        "％": "%", "½": "\\frac{1}{2}", "⅓": "\\frac{1}{3}", "¼": "\\frac{1}{4}",
    }
)  # fmt: skip
WRAPPERS = (("\\boxed{", "}"), ("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$"))
TEXT = r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*"
SPACE = r"(?:\s|~|\\[,;:! ]|\\quad)*"
GAP = re.compile(r"(?<=\d)(?:\\[,;:! ]|\{,\}|,\\!)\s*(?=\d{3}(?!\d))")
GROUPS = re.compile(r"(?<![\d.])(\d{1,3}(?: \d{3})+)(?![\d])")
POWER_OF_TEN = re.compile(r"([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,4})")
MIXED = re.compile(r"(-?\d+)\s+(\d+)\s*/\s*(\d+)")
CURRENCY = re.compile(r"(?:\\?\$|€|£|¥|₹|USD|EUR|GBP)\s*(?=[-\d.(\\])")
UNIT_IN_TEXT = re.compile(
    rf"(?P<number>.*[\d}})]){SPACE}{TEXT}\{{(?P<unit>[^{{}}]*)\}}(?:\^\{{?\d\}}?)?"
)
UNIT = re.compile(
    rf"(?P<number>.*[\d}})]){SPACE}(?P<unit>[A-Za-z]{{2,}}(?:[ /]+[A-Za-z]+)*)(?:\^\{{?[23]\}}?)?"
)
PERCENT = re.compile(rf"(.*[\d}})]){SPACE}(?:\\?%|percent|percentage)")
BASE = re.compile(r"([0-9A-Z]+)_\{?(\d+)\}?")
WORDS = re.compile(r"[A-Za-z][A-Za-z '-]*")
NOT_UNITS = frozenset({
    "pi", "sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "exp", "sqrt", "and", "or",
    "percent", "infinity", "inf", "oo", "choose", "mod",
})  # fmt: skip
SHORT_UNITS = frozenset({
    "cm", "mm", "km", "kg", "mg", "ml", "ft", "in", "yd", "mi", "lb", "oz", "hr", "hrs", "min",
    "mph", "kmh", "sq", "usd", "eur",
})  # fmt: skip
SAME_UNITS = {
    "centimeter": "cm", "centimetre": "cm", "millimeter": "mm", "kilometer": "km",
    "kilometre": "km", "meter": "m", "metre": "m", "kilogram": "kg", "gram": "g", "feet": "ft",
    "foot": "ft", "inche": "in", "inch": "in", "yard": "yd", "mile": "mi", "pound": "lb",
    "ounce": "oz", "hr": "hour", "h": "hour", "min": "minute", "sec": "second", "s": "second",
    "usd": "dollar", "degree": "", "unit": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """An answer as it was written: what is to be read, and what stood around it."""

    text: str
    unit: str = ""
    """In one form for one unit; empty if there is none, or one that says nothing."""
    percent: bool = False


def written(text: str) -> Written:
    """An answer taken apart."""
    whole = unwrapped(text.translate(SIGNS))
    if found := PERCENT.fullmatch(whole):
        return Written(rewritten(found.group(1)), percent=True)
    number, currency = CURRENCY.subn("", whole, count=1)
    if found := UNIT_IN_TEXT.fullmatch(number) or UNIT.fullmatch(number):
        unit = found["unit"].strip(" ~.").casefold()
        spaced = not number[: found.start("unit")].endswith(found["number"])
        if found.re is UNIT_IN_TEXT or _is_unit(unit, spaced):
            return Written(rewritten(found["number"]), unit_name(unit))
    return Written(rewritten(number), "dollar" if currency else "")


def unwrapped(text: str) -> str:
    """Without the box, the dollars and the full stop around an answer."""
    before, inner = "", text.strip()
    while inner != before:
        before = inner
        inner = inner.strip().removesuffix(".").strip()
        for left, right in WRAPPERS:
            whole = inner.startswith(left) and inner.endswith(right)
            if whole and len(inner) > len(left) and not _closes_early(inner[len(left) :], right):
                inner = inner[len(left) : -len(right)]
    return inner


def rewritten(text: str) -> str:
    """The same with the spellings that math-verify does not know."""
    text = GAP.sub("", text)
    text = GROUPS.sub(lambda found: found.group(1).replace(" ", ""), text).strip()
    if found := POWER_OF_TEN.fullmatch(text):
        return f"{found.group(1)}\\times 10^{{{int(found.group(2))}}}"
    if found := MIXED.fullmatch(text):
        return f"{found.group(1)}\\frac{{{found.group(2)}}}{{{found.group(3)}}}"
    text = re.sub(r"\\[dtc]?frac\s*(\d)\s+(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi ", text)
    text = re.sub(r"(?<![\\A-Za-z])oo(?![A-Za-z])", r"\\infty ", text)
    text = re.sub(r"(?<![\\A-Za-z])i(?![A-Za-z])", " i ", text)
    return text.replace("\\varnothing", "\\emptyset")


def words_in(text: str) -> str | None:
    """What an answer in words says, in small letters; None if it is no word. One letter, which may
    be a variable, keeps its size."""
    bare = re.sub(rf"{TEXT}\{{([^{{}}]*)\}}", r"\1", unwrapped(text)).strip(" .()")
    if not WORDS.fullmatch(bare):
        return None
    return bare if len(bare) == 1 else bare.casefold()


def base_in(text: str) -> tuple[str, str] | None:
    """Digits and base of a number like `101_2`."""
    found = BASE.fullmatch(text)
    return (found.group(1), found.group(2)) if found else None


def unit_name(unit: str) -> str:
    """One name for one unit."""
    bare = unit.replace("square", "").replace("cubic", "").strip()
    single = bare[:-1] if len(bare) > 3 and bare.endswith("s") else bare
    return SAME_UNITS.get(single, single)


def _is_unit(words: str, spaced: bool) -> bool:
    """Whether letters behind a number are a unit: a known one, or a word that stands apart."""
    parts = re.split(r"[ /]+", words)
    if NOT_UNITS & set(parts):
        return False
    return parts[0] in SHORT_UNITS or (spaced and len(parts[0]) > 2)


def _closes_early(inner: str, right: str) -> bool:
    """Whether what a text begins with ends before its end."""
    if right != "}":
        return right in inner[: -len(right)]
    depth = 1
    for at, sign in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth == 0:
            return at < len(inner) - 1
    return True
