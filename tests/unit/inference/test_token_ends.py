"""Which part of a reply's text each of its ids stands for."""

import pytest

pytest.importorskip("transformers")

from pettingllms.inference.chat import ChatRenderer
from pettingllms.models import make_tiny


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    texts = [f"go up {n}, then left" for n in range(50)]
    return ChatRenderer(make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts))


@pytest.mark.parametrize("text", ["go up 7, then left", "naïve 日本 😀 left", "", "a\n\n  b"])
def test_parts_end_where_the_next_begins_and_make_the_text(
    renderer: ChatRenderer, text: str
) -> None:
    ids = renderer.encode(text)
    ends = renderer.ends(ids, renderer.decode(ids))
    assert ends is not None
    assert ends.tolist() == [
        len(renderer.decode(ids[: at + 1]).rstrip("�")) for at in range(len(ids))
    ]


def test_a_letter_that_was_cut_belongs_to_no_token(renderer: ChatRenderer) -> None:
    ids = renderer.encode("left 😀")[:-2]
    text = renderer.decode(ids)
    assert text.endswith("�")
    ends = renderer.ends(ids, text)
    assert ends is not None
    assert ends[-1] == len("left ")


def test_ids_of_another_text_have_no_parts(renderer: ChatRenderer) -> None:
    assert renderer.ends(renderer.encode("left"), "right") is None
