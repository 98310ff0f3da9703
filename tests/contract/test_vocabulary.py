"""The field's words in code and docs: banned words are absent, standard terms are in the docs.

In environments and tests, string literals keep their words: prompts, seeds, wire keys, golden
values. Only file names, names, comments and docstrings are checked there.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pettingllms"
TESTS = ROOT / "tests"
BANNED = re.compile(
    r"\b(?:un)?paid\b|\bpays\b|\bseats?\b|\bseated\b|\bvoices?\b|\bcompany\b|\bcourts?\b"
    r"|\bexhibits?\b|\blineups?\b|\bentrants?\b|\bcontestants?\b|\bcareless\b|\bwatchers?\b"
    r"|\bworr(?:y|ies)\b|\btrunks?\b|\bmodels? that sees?\b|\beyes\b|\bsight\b"
    r"|\bnobody\b|\bsomebody\b|\beverybody\b|\bwhoever\b|\bwhom\b|\blearnt\b|\bmended\b"
    r"|\bof (?:its|their|his) own\b|\bone's own\b|\bcame to\b|\bgoe?s? on with\b|\blaid before\b"
    r"|\bstands in\b|\bquick form\b",
    re.IGNORECASE,
)
"""Words of version 0.1 that hid standard terms, and riddles that hide the actor."""
EXEMPT = {
    "config/renames.py",  # the table of renames
    "runs/checkpoint.py",  # renames fields of version 0.1
    "types/records.py",  # the same
}
ALLOWED = {
    "league/co_players.py": {"company"},  # a seed: another string would change every draw
    "envs/games/werewolf/README.md": {"nobody"},  # a legal reply of the game
    "evaluation/match/tally.py": {"seat"},  # a column of files of version 0.1
    "gateway/server.py": {"paid"},  # a key of the wire format
}
TERMS = (
    *("trajectory", "on-policy", "advantage", "baseline", "return", "value", "credit assignment"),
    *("reference model", "KL penalty", "entropy bonus", "importance weight", "clipping"),
    *("mismatch", "weight sync", "VLM", "multimodal", "image processor"),
    *("centralized critic", "self-play", "league", "exploitability", "NashConv", "LoRA adapter"),
    *("FSDP2", "tensor parallel", "rollout", "episode", "co-player", "LLM judge", "verifier"),
)


def texts_of(path: Path) -> list[tuple[int, str]]:
    """The lines of a source file that must use the vocabulary."""
    text = path.read_text(encoding="utf-8")
    lines = list(enumerate(text.splitlines(), start=1))
    if path.suffix != ".py" or not _has_words_as_data(path):
        return lines
    return [(0, path.stem), *_docstrings(text), *_names_and_comments(text)]


def _has_words_as_data(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in (SOURCE / "envs", TESTS))


def _docstrings(text: str) -> list[tuple[int, str]]:
    """Docstrings, and strings under fields."""
    return [
        (node.lineno, node.value.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def _names_and_comments(text: str) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = (tokenize.NAME, tokenize.COMMENT)
    return [(token.start[0], token.string) for token in tokens if token.type in kinds]


def found_in(path: Path, base: Path) -> list[str]:
    name = path.relative_to(base).as_posix()
    allowed = ALLOWED.get(name, set())
    return [
        f"{name}:{number}: {match[0]!r}"
        for number, line in texts_of(path)
        for match in BANNED.finditer(line.replace("_", " "))
        if match[0].lower() not in allowed
    ]


def sources() -> list[Path]:
    kinds = ("*.py", "*.js", "*.md", "*.toml")
    files = (path for kind in kinds for path in SOURCE.rglob(kind))
    return sorted(
        path
        for path in files
        if "vendor" not in path.parts and path.relative_to(SOURCE).as_posix() not in EXEMPT
    )


def test_source_uses_the_vocabulary() -> None:
    assert [found for path in sources() for found in found_in(path, SOURCE)] == []


def test_tests_use_the_vocabulary() -> None:
    files = sorted(TESTS.rglob("*.py"))
    assert [found for path in files for found in found_in(path, TESTS)] == []


@pytest.mark.parametrize("kind", ["docs", "."])
def test_docs_use_the_vocabulary(kind: str) -> None:
    folder = ROOT / kind
    files = folder.rglob("*.md") if kind == "docs" else folder.glob("*.md")
    pages = [path for path in files if path.name != "CHANGELOG.md"]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in sorted(pages)
        for match in BANNED.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_glossary_has_the_terms_of_the_field() -> None:
    pages = (ROOT / "docs" / "concepts").glob("*.md")
    text = " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in pages).lower()
    assert [term for term in TERMS if term.lower() not in text] == []


def test_a_banned_word_is_found(tmp_path: Path) -> None:
    file = SOURCE / "envs" / "base.py"
    assert BANNED.search("what a role is paid")
    assert not BANNED.search("the payload of a request")
    assert (1, "x") not in texts_of(file)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("seat = 1", [1]),
        ("def num_seats(): ...", [1]),
        ("x = 1\n# nobody", [2]),
        ('def f():\n    """First.\n\n    Nobody."""', [2]),
        ("x = 1\n'''Paid.'''", [2]),
        ("x = f('paid', 'a seat')", []),
        ("payload = seated_at = 1", [1]),
    ],
)
def test_in_tests_all_words_but_string_literals_are_checked(
    source: str, lines: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.TESTS", tmp_path)
    (tmp_path / "test_a.py").write_text(source)
    found = found_in(tmp_path / "test_a.py", tmp_path)
    assert [int(text.split(":")[1]) for text in found] == lines


def test_file_names_of_tests_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.TESTS", tmp_path)
    (tmp_path / "test_sight_engine.py").write_text("")
    assert found_in(tmp_path / "test_sight_engine.py", tmp_path) == [
        "test_sight_engine.py:0: 'sight'"
    ]
