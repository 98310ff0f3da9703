import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from toys import Relay, roll

from pettingllms.errors import RecordError
from pettingllms.types import (
    Image,
    Message,
    Table,
    episode_from_json,
    episode_to_json,
    read_episodes,
    user,
    write_episodes,
)

RED, BLUE = Image(b"red"), Image(b"blue")
TABLE = Table(("name", "n"), (("a|b", 1), ("line\nbreak", None), ("", 2.5), ("yes", True)))


def shown(*messages: Message):
    """An episode all of whose turns were shown these messages."""
    (episode,) = roll(Relay(), num_tasks=1, num_samples=1)
    episode.turns = [replace(turn, messages=messages) for turn in episode.turns]
    return episode


def test_images_are_plain_values() -> None:
    assert Image(b"red") == RED != BLUE
    assert {Image(b"red"), RED} == {RED}
    copy = pickle.loads(pickle.dumps(user("look", RED, TABLE)))  # noqa: S301 - just made
    assert copy == user("look", RED, TABLE)
    assert user("look", RED) != user("look", BLUE)
    assert "red" not in repr(RED)
    with pytest.raises(TypeError, match="bytes of a PNG file"):
        Image("red")


def test_a_table_is_text_for_those_who_read() -> None:
    assert user("Which is larger?", TABLE, RED).text == (
        "| name | n |\n| --- | --- |\n| a\\|b | 1 |\n| line break |  |\n|  | 2.5 |\n"
        "| yes | True |\n\nWhich is larger?"
    )
    assert user("plain").text == "plain"
    with pytest.raises(ValueError, match="has 2 cells; expected 1"):
        Table(("a",), ((1, 2),))


def test_messages_with_parts_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    messages = (user("one", RED, TABLE, BLUE), user("two", RED), user("three"))
    path = tmp_path / "e.jsonl"
    write_episodes(path, [shown(*messages), shown(*messages)])
    for episode in read_episodes(path):
        assert all(turn.messages == messages for turn in episode.turns)
        for turn in episode.turns:
            kinds = [[type(cell) for cell in row] for row in turn.messages[0].parts[1].rows]
            assert kinds == [[type(cell) for cell in row] for row in TABLE.rows]


def test_an_image_is_stored_once_however_often_it_was_shown(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write_episodes(tmp_path / name, [shown(user("x", RED, BLUE)), shown(user("y", RED))])
    stored = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert stored == sorted([f"{RED.digest}.png", f"{BLUE.digest}.png"])
    assert (tmp_path / "images" / f"{RED.digest}.png").read_bytes() == b"red"


def test_a_file_without_images_has_no_folder_of_them(tmp_path: Path) -> None:
    write_episodes(tmp_path / "e.jsonl", [shown(user("x"))])
    assert [path.name for path in tmp_path.iterdir()] == ["e.jsonl"]


def test_a_record_with_a_missing_or_changed_image_says_so(tmp_path: Path) -> None:
    path, image = tmp_path / "e.jsonl", tmp_path / "images" / f"{RED.digest}.png"
    write_episodes(path, [shown(user("x", RED))])
    image.write_bytes(b"green")
    with pytest.raises(RecordError, match=r"e\.jsonl, line 1: image .* has changed"):
        list(read_episodes(path))
    image.unlink()
    with pytest.raises(RecordError, match=f"line 1: image {RED.digest} is missing.*copy"):
        list(read_episodes(path))
    with pytest.raises(RecordError, match="read without its images"):
        episode_from_json(episode_to_json(shown(user("x", RED))))


@pytest.mark.parametrize("name", ["../../secret", "A" * 64, "", "0" * 63])
def test_a_record_cannot_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    path = tmp_path / "e.jsonl"
    write_episodes(path, [shown(user("x", RED))])
    path.write_text(path.read_text().replace(RED.digest, name))
    with pytest.raises(RecordError, match="not a SHA-256"):
        list(read_episodes(path))


def test_a_part_of_a_kind_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    write_episodes(path, [shown(user("x", RED))])
    path.write_text(path.read_text().replace('"image":', '"hologram":'))
    with pytest.raises(RecordError, match="unknown message part.*hologram"):
        list(read_episodes(path))
