"""Which answers are labelled, that questions are balanced within, and that none is on two sides."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plays import linear, overwrite, rewards

from pettingllms.config.verifier import VerifierConfig
from pettingllms.errors import DataError
from pettingllms.types import Episode, Failed, Message, system, user
from pettingllms.verifier.labeled_answers import (
    Answer,
    balanced,
    by_question,
    label,
    read_answers,
    train_test_split,
    write_answers,
)


def play(task: str, right: dict[str, bool], *texts: tuple[str, str]) -> Episode:
    made = linear(task, 0, *((role, rewards()) for role, _ in texts))
    made.success = right
    for turn, (_, text) in zip(made.turns, texts, strict=True):
        overwrite(turn, text=text)
    return made


def found(*episodes: Episode, **options: Any) -> list[tuple[str, bool]]:
    return [(a.text, a.correct) for a in label(episodes, VerifierConfig(**options))]


def test_the_last_reply_of_each_role_is_labelled_by_whether_the_role_reached_its_aim() -> None:
    one = play("t", {"a": True, "b": False}, ("a", "x"), ("b", "y"), ("a", "z"))
    assert found(one) == [("z", True), ("y", False)]
    assert found(one, turns="all") == [("x", True), ("y", False), ("z", True)]
    assert found(one, roles=["b"]) == [("y", False)]


def test_what_failed_or_did_not_come_to_an_end_has_no_label() -> None:
    cut = play("t", {"a": True}, ("a", "x"))
    cut.failure = Failed("cut", "limit")
    open_end = play("t", {}, ("a", "x"))
    lost = play("t", {"a": True}, ("a", "x"))
    lost.turns[0].credit.failure = Failed("lost", "sampler")
    assert found(cut, open_end, lost) == []


def test_a_question_is_a_task_and_a_role() -> None:
    plays = [play(task, {"a": True, "b": True}, ("a", "x"), ("b", "x")) for task in ("t", "t", "u")]
    assert [len(some) for some in by_question(label(plays, VerifierConfig())).values()] == [
        2,
        2,
        1,
        1,
    ]


def answer(question: str, text: str, right: bool) -> Answer:
    return Answer(question, (user(question),), text, right)


answers = st.lists(
    st.builds(answer, st.sampled_from("abcd"), st.sampled_from("wxyz"), st.booleans()), max_size=40
)


@given(answers, st.integers(1, 3), st.integers(0, 9))
def test_each_question_has_as_many_right_as_wrong_answers(
    some: list[Answer], most: int, seed: int
) -> None:
    kept = balanced(some, most, seed)
    assert len(set(kept)) == len(kept), "copies count once"
    assert set(kept) <= set(some)
    for question, own in by_question(some).items():
        sides = [{a for a in own if a.correct is right} for right in (True, False)]
        wanted = min(most, *map(len, sides))
        counts = [
            sum(a.question == question and a.correct is right for a in kept)
            for right in (True, False)
        ]
        assert counts == [wanted, wanted]
    assert balanced(some, most, seed) == kept


@given(answers, st.floats(0, 0.99), st.integers(0, 9))
def test_no_question_is_in_both_training_and_test(
    some: list[Answer], share: float, seed: int
) -> None:
    train, kept = train_test_split(some, share, seed)
    assert sorted(map(id, [*train, *kept])) == sorted(map(id, some))
    assert not {a.question for a in train} & {a.question for a in kept}
    assert train_test_split(some, share, seed) == (train, kept)


def test_about_the_share_that_was_asked_for_is_kept() -> None:
    some = [answer(str(n), "x", True) for n in range(2000)]
    assert 350 < len(train_test_split(some, 0.2, 0)[1]) < 450
    assert train_test_split(some, 0.0, 0)[1] == []


def test_answers_are_read_as_they_were_written(tmp_path: Path) -> None:
    said = (system("rules\n"), user("wie viel?"), Message("assistant", "ü"))
    some = [Answer("q", said, "é\n", True), answer("r", "", False)]
    write_answers(tmp_path / "a.jsonl", some)
    assert read_answers(tmp_path / "a.jsonl") == some


@pytest.mark.parametrize("line", ["{", "[]", '{"format": 2}', '{"format": 1, "right": 1}'])
def test_a_file_of_something_else_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    write_answers(tmp_path / "a.jsonl", [answer("q", "x", True)])
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2"):
        read_answers(tmp_path / "a.jsonl")


def test_the_turn_of_an_answer_says_nothing_about_it() -> None:
    early = [play("t", {"a": right}, ("a", f"{at}")) for at, right in enumerate([True] * 3)]
    late = [play("t", {"a": False}, ("a", "first"), ("a", f"late {at}")) for at in range(3)]
    mixed = [play("t", {"a": True}, ("a", "first"), ("a", "saved"))]
    answers = label([*early, *late, *mixed], VerifierConfig())
    assert [answer.turn for answer in answers] == [0, 0, 0, 1, 1, 1, 1]
    kept = balanced(answers, 8, seed=1)
    assert [(answer.turn, answer.correct) for answer in kept] == [(1, True), (1, False)]
