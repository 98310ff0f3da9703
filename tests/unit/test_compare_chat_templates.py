"""scripts/compare_chat_templates.py finds every id that differs, and wrote the shipped page."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from chat_models import write_tokenizers

from pettingllms.inference.chat import ChatRenderer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "chat_templates.md"
DATED = (
    "{{ strftime_now('%Y-%m-%d') }}{% for message in messages %}{{ message.content }}{% endfor %}"
)


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("chat_template_ids")
    module._load.cache_clear()  # renderers keep prompts, also those of a patched test
    return module


@pytest.fixture
def pages(ids: Any) -> Any:
    return importlib.import_module("chat_template_page")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_tokenizers(tmp_path_factory.mktemp("tokenizers"))


def results_of(ids: Any, folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    family = ids.Family(folder)
    with ids.fixed_date():
        return {"tiny": {name: family.rendered(one) for name, one in ids.CONVERSATIONS.items()}}


def test_compare_finds_the_first_differing_id(pages: Any) -> None:
    def size(expected: Any, found: Any) -> Any:
        one = pages.compare("f", "c", "w", expected, found)
        return one and (one.position, one.num_ids, one.expected, one.found, one.error)

    assert size([1, 2, 3], [1, 2, 3]) is None
    assert size([1, 2, 3], [1, 9, 3]) == (1, 1, (2,), (9,), "")
    assert size([1, 2, 3], [1, 2]) == (2, 1, (3,), (), "")
    assert size([1, 2, 3, 4], [0, 1, 2, 3, 5, 6]) == (0, 3, (), (0,), "")
    assert size(None, [1]) is None
    assert size([1], None) is None
    assert size("no", "never") is None
    assert size([1], "no") == (0, 0, (), (), "no")
    assert size("no", [1]) == (0, 0, (), (), "Transformers: no")


@pytest.mark.parametrize("kind", ["bytes", "symbols", "tools"])
def test_ordinary_chats_have_the_ids_of_transformers(
    ids: Any, pages: Any, folders: dict[str, Path], kind: str
) -> None:
    results = results_of(ids, folders[kind])
    rendered = {
        way for ways in results["tiny"].values() for way, one in ways.items() if type(one) is list
    }
    assert rendered == {"transformers", *ids.WAYS} - ({"continued"} if kind == "symbols" else set())
    chats = {"user", "system", "turns", "spaces"}
    assert {one.conversation for one in pages.differences(results)} & chats == set()


def test_a_changed_id_is_found(
    ids: Any, pages: Any, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    correct = ChatRenderer.text_ids

    def changed(self: ChatRenderer, text: str) -> Any:
        found = correct(self, text)
        found[3] += 1
        return found

    monkeypatch.setattr(ChatRenderer, "text_ids", changed)
    results = results_of(ids, folders["bytes"])
    found = [one for one in pages.differences(results) if one.conversation == "system"]
    assert [(one.way, one.position, one.num_ids) for one in found] == [
        ("environment", 3, 1),
        ("gateway", 3, 1),
    ]
    table = pages.table(results, found).splitlines()
    cells = dict(zip(table[0].split(" | "), table[2].split(" | "), strict=True))
    assert cells["system"] == "environment, gateway: 1"
    assert cells["turns"] == "equal"
    text = pages.listing(found, lambda one: "Changed.", lambda _, some: [f"<{i}>" for i in some])
    assert text.startswith("Changed.\n\n| family ")
    assert text.count("\n| tiny | system (environment, gateway) | 3 | `<") == 1


def test_spelled_control_tokens_differ(ids: Any, pages: Any, folders: dict[str, Path]) -> None:
    found = pages.differences(results_of(ids, folders["bytes"]))
    ways = {one.way for one in found if one.conversation == "spelled"}
    assert ways == {"environment", "gateway"}


def test_templates_write_a_fixed_date(ids: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    for file in folders["bytes"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text(DATED)
    family = ids.Family(tmp_path)
    with ids.fixed_date():
        found = family.rendered(ids.CONVERSATIONS["user"])
    assert "".join(family.spell(found["gateway"])).startswith("2024-07-26What")


def test_the_page_has_all_families_and_conversations(ids: Any) -> None:
    families = importlib.import_module("chat_template_families").FAMILIES
    reasons = importlib.import_module("chat_template_reasons")
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    head = next(row for row in rows if row[0] == "| family" and "turns" in row)
    assert [name.removesuffix(" |") for name in head[1:]] == list(ids.CONVERSATIONS)
    named = [row[0].removeprefix("| ") for row in rows if len(row) == len(head)]
    assert named[2:] == list(families)
    assert reasons.UNKNOWN not in PAGE.read_text(encoding="utf-8")
