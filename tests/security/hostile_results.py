"""Results and answers that no honest wrong one looks like: a corpus, and strategies for more of it.

`SECRET` is in no entry and no strategy draws it, so whatever is taken for a value that holds it was
taken wrongly.
"""

import json
import math

from hypothesis import strategies as st

SECRET = 918_273_645_546_372
MERSENNE = 2**61 - 1
"""Python hashes whole numbers modulo this one."""

WANTED = [
    SECRET,
    float(SECRET) + 0.5,
    int(f"{SECRET}" * 27),
    [SECRET],
    [1, [2, (SECRET,)]],
    {SECRET},
    {SECRET, 1, 2},
    frozenset({(SECRET, 1)}),
    {SECRET: 1},
    {"a": {1: [SECRET]}},
    complex(1, SECRET),
    f"{SECRET}",
    b"%d" % SECRET,
]
"""Expected values of every type."""

LEAVES = [
    *(0, 1, -1, 2**63, -(2**64), 10**400, -(10**4000), True, False, None),
    *(0.0, -0.0, 5e-324, 1.7e308, math.inf, -math.inf, math.nan),
    *(
        "",
        "0",
        "\x00",
        "\ud800",
        "\udfff\ud800",
        "a" * 10_000,
        "\u202e",
        "NaN",
        '"',
        "\\",
        "\u2028",
    ),
]
TAGS = ["tuple", "set", "frozenset", "dict", "bytes", "complex", "other", "eval", "", "__class__"]

TREES = st.recursive(
    st.sampled_from(LEAVES)
    | st.integers(-100, 100)
    | st.floats()
    | st.text(max_size=4)
    | st.integers(0, 50).map(lambda k: k * MERSENNE),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.builds(lambda tag, items: {tag: items}, st.sampled_from(TAGS), inner)
        | st.builds(
            lambda tag, items: {tag: items}, st.sampled_from(TAGS), st.lists(inner, max_size=4)
        )
        | st.builds(
            lambda pairs: {"dict": pairs},
            st.lists(st.lists(inner, min_size=1, max_size=3), max_size=3),
        )
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)
"""Whatever JSON a program may write in the place of a value: tags in all the wrong places."""
WRITTEN = st.one_of(
    TREES.map(json.dumps),
    TREES.map(json.dumps).flatmap(lambda text: st.integers(0, len(text)).map(lambda n: text[:n])),
    st.text(max_size=20),
    st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "replace")),
)
"""What may stand in the place of an answer, JSON or not."""


def deep(opening: str, inside: str, closing: str, depth: int) -> str:
    return opening * depth + inside + closing * depth


LONG_TEXTS = [
    json.dumps({"set": [k * MERSENNE for k in range(9000)]}),
    json.dumps({"frozenset": [k * MERSENNE for k in range(9000)]}),
    json.dumps({"dict": [[k * MERSENNE, k] for k in range(7000)]}),
    json.dumps({"set": [{"tuple": [k * MERSENNE, 1]} for k in range(5000)]}),
    json.dumps({"set": [{"frozenset": [k * MERSENNE, 0]} for k in range(5000)]}),
    json.dumps({"dict": [[{"tuple": [k * MERSENNE]}, 0] for k in range(5000)]}),
    json.dumps({"set": [float(2**k) for k in range(-1000, 1000)]}),
    json.dumps([10**4200] * 50),
    "[" + ",".join(["1e999"] * 40_000) + "]",
    "9" * 250_000,
    "0." + "1" * 250_000,
    "1" * 200_000 + "e-200000",
    '"' + "\\ud800" * 40_000 + '"',
    deep("[", "", "]", 990),
    deep("[", "", "]", 100_000),
    deep('{"tuple": [', "1", "]}", 400),
    deep('{"set": [', "1", "]}", 400),
    deep('{"set": [{"frozenset": [', "1", "]}]}", 200),
    deep('{"dict": [[', "1, 1", "]]}", 300),
    deep('{"dict": [[1, ', "1", "]]}", 300),
    deep('{"a": ', "1", "}", 20_000),
    *(f'{{"complex": [{part}, 0.0]}}' for part in ("9" * 400, "1e999", "NaN", '"1"', "[]", "true")),
]
"""Long ones: what costs time if values are built, or memory, or the stack."""

RESULTS = [
    "10**5000", "-10**400", "10**400 * 1j if False else complex(1e308, 1e308)", "float('nan')",
    "float('inf')", "[float('nan')] * 10", "{float('nan')}", "{float('nan'): float('nan')}",
    "complex('nan')", "complex(float('inf'), -0.0)", "5e-324", "-0.0",
    "'\\ud800'", "'\\udcff' * 1000", "chr(0x10ffff)", "'\\x00' * 1000", "'a' * 200_000",
    "b'\\xff' * 1000", "bytes(range(256))", "bytearray(10)", "memoryview(b'x')", "range(10**9)",
    "(lambda: 1)", "type", "object()", "Ellipsis", "NotImplemented", "print", "__import__('os')",
    "{k * (2**61 - 1) for k in range(3000)}", "{k * (2**61 - 1): 0 for k in range(3000)}",
    "frozenset(k * (2**61 - 1) for k in range(3000))",
    "{(k * (2**61 - 1), 1) for k in range(2000)}", "[[]] * 10_000",
    "nested(list, 900)", "nested(tuple, 900)", "nested(frozenset, 300)", "nested_dict(900)",
    "recursive_list()", "recursive_dict()", "recursive_tuple()",
    "Equal()", "EqualInt(0)", "EqualStr('x')", "EqualList()", "EqualDict()", "EqualSet()",
    "Truthy()", "Liar()", "RaisesOnRepr()", "RaisesOnIter([1])", "RaisesOnHash()",
    "(x for x in ())", "iter([1])", "map(int, '12')", "zip()", "reversed([1])",
    "1 / 0", "[][0]", "{}['a']", "undefined", "int('x')", "open('/etc/passwd').read()",
    "(_ for _ in ()).throw(KeyboardInterrupt)", "(_ for _ in ()).throw(GeneratorExit)",
    "(_ for _ in ()).throw(MemoryError)", "(_ for _ in ()).throw(RecursionError)",
    "(_ for _ in ()).throw(SystemExit('x' * 10_000))", "sys.exit(0)", "sys.exit(3.5)",
    "sys.exit(10**30)", "sys.exit([])", "quit()", "os._exit(0)", "os._exit(300)", "os.abort()",
    "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 11)", "os.kill(os.getpid(), 24)",
    "os.kill(0, 9)", "os.write(3, b'[')", "os.write(3, b'\\xff' * 100)", "os.close(3)",
    "os.write(3, b'null' + b' ' * 200_000)", "os.write(2, b'x' * 200_000)", "os.closerange(0, 256)",
    "os.dup2(2, 3)", "sys.setrecursionlimit(10**9) or overflow()", "overflow()",
    "'x' * 10**11", "[0] * 10**11", "bytes(10**11)", "sys.stdout.write('{\"out\": \"1\"}')",
    "sys.modules.clear()", "globals().clear()", "setattr(json, 'dumps', lambda _: '1')",
    "setattr(wire, 'encode', lambda _: '9' * 5000)", "setattr(wire, 'encode', lambda _: None)",
    "setattr(wire, 'encode', lambda _: b'1')", "setattr(wire, '_plain', lambda _: {'set': [[]]})",
    "setattr(wire, '_plain', lambda _: {'complex': [10**400, 0]})",
    "setattr(wire, '_plain', lambda _: {'complex': ['1', 2]})",
    "setattr(wire, '_plain', lambda _: {'dict': [[[], 1]]})",
    "setattr(wire, '_plain', lambda _: {'bytes': chr(999)})",
    "setattr(wire, '_plain', lambda _: {'tuple': 5})",
]  # fmt: skip
"""Expressions that a function returns the value of."""

PROGRAM = """
import json, os, sys
wire = sys.modules['wire']

class Equal:
    __eq__ = lambda self, other: True
    __hash__ = lambda self: 0
class EqualInt(int): __eq__, __hash__ = Equal.__eq__, Equal.__hash__
class EqualStr(str): __eq__, __hash__ = Equal.__eq__, Equal.__hash__
class EqualList(list): __eq__, __len__ = Equal.__eq__, lambda self: 10**9
class EqualDict(dict): __eq__, items = Equal.__eq__, lambda self: 5
class EqualSet(set): __eq__, __iter__ = Equal.__eq__, lambda self: iter([[]])
class Truthy:
    __bool__ = lambda self: True
    __getattr__ = lambda self, name: Truthy()
class Liar:
    __class__ = property(lambda self: int)
class RaisesOnRepr(Exception):
    def __repr__(self): raise RaisesOnRepr
    __str__ = __repr__
class RaisesOnIter(list):
    def __iter__(self): raise MemoryError
class RaisesOnHash:
    def __hash__(self): raise MemoryError

def nested(kind, depth):
    out = kind()
    for _ in range(depth): out = kind([out])
    return out
def nested_dict(depth):
    out = {}
    for _ in range(depth): out = {1: out}
    return out
def recursive_list():
    out = []; out.append(out); return out
def recursive_dict():
    out = {}; out[1] = out; return out
def recursive_tuple():
    out = ([],); out[0].append(out); return out
def overflow(): return overflow()

def result(at):
    return eval(RESULTS[at], globals())
"""

OUTPUTS = [
    "'nan'", "'inf'", "'-inf'", "'1e999'", "'9' * 100_000", "'0.' + '1' * 100_000", "'\\ud800'",
    "'\\x00'", "'\\r\\n' * 1000", "'\\n' * 50_000", "' ' * 100_000", "'\\u2028'", "'-' * 1000",
    "'1e' + '9' * 1000", "'\\x1b[2J'", "'٣'", "'𝟙'", "'1_0'", "'0x10'",
    "' '.join(['1e999'] * 9000)",
]  # fmt: skip
"""What a program prints."""

BOMBS = [
    "9^{9^{9^{9}}}", "2^{2^{2^{2^{2^{2}}}}}", "(10^{100})^{(10^{100})}", "((((9!)!)!)!)!",
    "(10^9)!",
    "\\binom{10^9}{5\\cdot 10^8}", "\\prod_{k=1}^{10^{9}} (k^2+1)", "(a+b+c+d+e+f+g+h)^{99999}",
    "\\sum_{k=1}^{10^{12}} \\frac{1}{k^k}", "\\int_0^1 \\sin(\\sin(\\sin(x^{x}))) dx",
    "\\sqrt[10^{9}]{10^{10^{9}}}", "\\sin(10^{10^{8}})", "\\log_{2}(2^{2^{99999}})",
]  # fmt: skip
"""Answers that a computer algebra system works on until its process is killed."""

PIECES = [
    "\\frac{", "\\sqrt{", "\\sqrt[", "^{", "_{", "\\left(", "\\right)", "\\begin{pmatrix}",
    "\\end{pmatrix}", "\\{", "\\}", "\\text{", "\\boxed{", "\\infty", "\\pm", "\\emptyset", "\\cup",
    "\\in", "\\mathbb{R}", "\\%", "$", "&", "\\\\", "|", "!", "=", "<", "\\le", "(", ")", "[", "]",
    "{", "}", ",", ".", ";", ":", "'", "+", "-", "*", "/", "0", "1", "9", "99", "0.1", "1e9", "x",
    "i", "e", "pi", "and", "or", "cm", "million", "_2", "°", "π", "½", "−", "∞", "\ud800", "\x00",
    "\n", "٣", "lambda", "__import__", "None", "True", "nan", "inf", "oo", "zoo",
]  # fmt: skip
ANSWERS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=10).map("".join)
"""Pieces of LaTeX in any order."""
