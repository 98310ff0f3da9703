"""Normalizes the notations of an answer to the one that math-verify parses best.

The rules concern notation only, except for numbers that are partly words (`2 million`). A unit is
separated from the number before it, because algebra would read `12 cm` as a product.
"""

import re
from dataclasses import dataclass
from decimal import Context, Decimal

SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "×": "\\times ", "÷": "\\div ", "·": "\\cdot ", "π": "\\pi ",
        "∞": "\\infty ", "°": "^\\circ ", "≤": "\\le ", "≥": "\\ge ", "∪": "\\cup ",
        "∅": "\\emptyset ", "±": "\\pm ", "√": "\\sqrt ", "\u00a0": " ", "\u202f": " ",
        "％": "%", "½": "\\frac{1}{2}", "⅓": "\\frac{1}{3}", "¼": "\\frac{1}{4}",
        "²": "^2", "³": "^3",
    }
)  # fmt: skip
WRAPPERS = (("\\boxed{", "}"), ("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$"))
TEXT = r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*"
SPACE = r"(?:\s|~|\\[,;:! ]|\\q?quad)*"
GAP = re.compile(r"(?<=\d)(?:\\[,;:! ]|\{,\}|,\\!)\s*(?=\d{3}(?!\d))")
GROUPS = re.compile(r"(?<![\d.])(\d{1,3}(?: \d{3})+)(?![\d])")
POWER_OF_TEN = re.compile(r"([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,4})")
MIXED = re.compile(r"(-?\d+)\s+(\d+)\s*/\s*(\d+)")
CURRENCY = re.compile(r"(?:\\?(\$)|([€£¥₹]|USD|EUR|GBP))\s*(?=[-\d.(\\])")
NUMBER = r"(?P<number>.*(?:[\d})]|(?<![A-Za-z])pi))"
POWER = r"(?:\^\{?(?P<power>[2-9])\}?)?"
UNIT_IN_TEXT = re.compile(rf"{NUMBER}{SPACE}{TEXT}\{{(?P<unit>[^{{}}]*)\}}{SPACE}{POWER}")
UNIT = re.compile(rf"{NUMBER}{SPACE}(?P<unit>[A-Za-z]{{2,}}(?:\.?[ /]+[A-Za-z]+)*|[€£¥₹]){POWER}")
PLAIN = re.compile(r"[-+]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?")
PERCENT = re.compile(rf"(.*[\d}})]){SPACE}(?:\\?%|percent|percentage)")
BASE = re.compile(r"([0-9A-Z]+)_\{?(\d+)\}?")
WORDS = re.compile(r"[A-Za-z][A-Za-z '-]*")
NOT_UNITS = frozenset({
    "pi", "sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "exp", "sqrt", "and", "or",
    "percent", "infinity", "inf", "oo", "choose", "mod", "plus", "minus", "over", "divided",
    "multiplied", "factorial", "negative", "not", "no", "nor", "none", "undefined",
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
})  # fmt: skip
TIMES = re.compile(r"\btimes (?!(?:a|an|as|each|more|per|the)\b)")
"""A product; `3 times` and `3 times a day` are counts."""
SCALES = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "dozen": 12,
}  # fmt: skip
PARTS = {
    "half": 2, "halve": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "hundredth": 100, "thousandth": 1000,
}  # fmt: skip
"""Without quarters, which are also coins and three months."""
EXACT = Context(prec=4000)
"""More digits than an answer has letters, and its words can add."""
POWERS = {"square": 2, "squared": 2, "sq": 2, "cubic": 3, "cubed": 3, "cu": 3}
SHORT_UNITS = frozenset({
    "cm", "mm", "km", "kg", "mg", "ml", "ft", "in", "yd", "mi", "lb", "oz", "hr", "hrs", "min",
    "mph", "kmh", "sq", "cu", "usd", "eur", "gbp", "€", "£", "¥", "₹",
})  # fmt: skip
SAME_UNITS = {
    "centimeter": "cm", "centimetre": "cm", "millimeter": "mm", "kilometer": "km",
    "kilometre": "km", "meter": "m", "metre": "m", "kilogram": "kg", "gram": "g", "feet": "ft",
    "foot": "ft", "inche": "in", "inch": "in", "yard": "yd", "mile": "mi", "lb": "pound",
    "ounce": "oz", "hr": "hour", "h": "hour", "min": "minute", "sec": "second", "s": "second",
    "usd": "dollar", "$": "dollar", "eur": "euro", "€": "euro", "gbp": "pound", "£": "pound",
    "¥": "yen", "₹": "rupee", "degree": "", "unit": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """An answer split into its value and the surrounding notation."""

    text: str
    unit: str = ""
    """The unit in canonical form; empty without a meaningful unit."""
    percent: bool = False


def written(text: str) -> Written:
    """Split an answer."""
    whole = unwrapped(text.translate(SIGNS))
    if found := PERCENT.fullmatch(whole):
        return Written(rewritten(found.group(1)), percent=True)
    symbol = CURRENCY.search(whole)
    currency = unit_name((symbol.group(1) or symbol.group(2)).casefold()) if symbol else ""
    number = CURRENCY.sub("", whole, count=1)
    if found := UNIT_IN_TEXT.fullmatch(number) or UNIT.fullmatch(number):
        spaced = not number[: found.start("unit")].endswith(found["number"])
        scale, unit = _scaled(found["unit"].replace(".", "").strip(" ~").casefold())
        if not unit or _is_unit(unit, spaced, in_text=found.re is UNIT_IN_TEXT):
            value = multiplied(found["number"].strip(), *scale)
            return Written(rewritten(value), unit_name(unit, found["power"]) or currency)
    return Written(rewritten(number), currency)


def unwrapped(text: str) -> str:
    """The answer without box, dollar signs and final period."""
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
    """The text with spellings replaced that math-verify does not know."""
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
    """An answer in words, in lowercase; None if it is not a word. A single letter keeps its case,
    as it may be a variable."""
    bare = re.sub(rf"{TEXT}\{{([^{{}}]*)\}}", r"\1", unwrapped(text)).strip(" .()")
    if not WORDS.fullmatch(bare):
        return None
    return bare if len(bare) == 1 else bare.casefold()


def base_in(text: str) -> tuple[str, str] | None:
    """Digits and base of a number like `101_2`."""
    found = BASE.fullmatch(text)
    return (found.group(1), found.group(2)) if found else None


def unit_name(unit: str, power: str | None = None) -> str:
    """The canonical name of a unit: `square cm`, `cm squared` and `cm^2` are the same."""
    words = unit.split()
    for at in (0, -1):
        if words and words[at] in POWERS:
            power = str(POWERS[words.pop(at)])
    name = SAME_UNITS.get(_single(" ".join(words)), _single(" ".join(words)))
    return f"{name}^{power}" if name and power else name


def multiplied(number: str, times: int, parts: int) -> str:
    """A number times a scale and divided by parts; plain digits where possible."""
    if times == parts == 1:
        return number
    if PLAIN.fullmatch(number) and parts == 1:
        return f"{EXACT.multiply(Decimal(number.replace(',', '')), Decimal(times)):f}"
    number = number if times == 1 else f"({rewritten(number)})\\times {times}"
    return number if parts == 1 else f"\\frac{{{number}}}{{{parts}}}"


def _scaled(words: str) -> tuple[tuple[int, int], str]:
    """How many a number in front of words counts (`million`), how many of it make a whole
    (`thirds`), and the words that are left."""
    times, parts, left = 1, 1, words.split()
    while left and _single(left[0]) in SCALES:
        times *= SCALES[_single(left.pop(0))]
    if left and _single(left[0]) in PARTS and (left[0].endswith("s") or len(left) == 1):
        parts = PARTS[_single(left.pop(0))]
    if left and (times, parts) != (1, 1) and left[0] == "of":
        left = [word for word in left[1:] if word not in ("a", "an", "the")]
    return (times, parts), " ".join(left)


def _single(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def _is_unit(words: str, spaced: bool, in_text: bool) -> bool:
    """Whether words behind a number are a unit: set as text, a known one, or one that stands
    apart. Words that are another number never are."""
    parts = [word for word in re.split(r"[ /]+", words) if word not in ("squared", "cubed")]
    numbers = NOT_UNITS | SCALES.keys()
    if not parts or TIMES.search(words) or any(p in numbers or _single(p) in SCALES for p in parts):
        return False
    return in_text or parts[0] in SHORT_UNITS or (spaced and len(parts[0]) > 2)


def _closes_early(inner: str, right: str) -> bool:
    """Whether the bracket that opens a text closes before its end."""
    if right != "}":
        return right in inner[: -len(right)]
    depth = 1
    for at, sign in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth == 0:
            return at < len(inner) - 1
    return True
