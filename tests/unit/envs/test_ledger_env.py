import random
from typing import Any

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.tasks.ledger.rows import make_sheet
from pettingllms.types import Scored

READERS = ("reader_1", "reader_2", "reader_3")


def ledger(**options: Any) -> Any:
    return make_env("ledger-v1", **{"num_rows": 8, "num_readers": 3, "terse": True, **options})


def start(env: Any, task: int = 0) -> Any:
    return env.reset(env.tasks("test")[task], 0)


def share_right(env: Any, player: str, num_tasks: int = 300) -> float:
    rng, right = random.Random(0), 0
    for at in range(num_tasks):
        state = start(env, at)
        while acting := env.acting(state):
            replies = {role: env.player(player)(env, state, role, rng) for role in acting}
            state = env.step(state, replies).state
        right += env.success(state, env.roles[0])
    return right / num_tasks


@pytest.mark.parametrize("question", ["lookup", "largest"])
@pytest.mark.parametrize("solo", [False, True])
def test_exact_players_are_right_and_random_ones_seldom_are(question: str, solo: bool) -> None:
    env = ledger(question=question, num_rows=12, solo=solo)
    assert share_right(env, "exact", 50) == 1.0
    assert 0.01 < share_right(env, "random") < 0.2


def test_naming_the_largest_possible_amount_is_right_as_often_as_it_is_drawn() -> None:
    """12 of 90 amounts are in a ledger."""
    env = ledger(num_rows=12, num_digits=2)
    assert share_right(env, "blind", 1000) == pytest.approx(12 / 90, abs=0.04)


def test_the_parts_of_the_readers_are_the_ledger_and_the_combiner_sees_no_entry() -> None:
    env = ledger()
    state = start(env)
    parts = [env.part_of(state, role) for role in READERS]
    assert tuple(row for part in parts for row in part) == state.sheet.rows
    assert [len(part) for part in parts] == [2, 3, 3]
    noted = env.step(state, dict.fromkeys(READERS, "none")).state
    text = env.observe(noted, "combiner")[-1].text
    assert text == "notes\nnone\nnone\nnone\nlargest?"


def test_one_role_sees_the_whole_ledger() -> None:
    for env in (ledger(solo=True, terse=False), ledger(solo=True, question="lookup")):
        text = env.observe(start(env), "reader")[-1].text.replace(":", "")
        assert all(f"{name} {amount}\n" in text for name, amount in start(env).sheet.rows)
    env = ledger(solo=True)
    state = start(env)
    text = env.observe(state, "reader")[-1].text
    assert text.split("\n")[1:-1] == [str(amount) for _, amount in state.sheet.rows]
    assert env.acting(env.step(state, {"reader": "1"}).state) == ()


def test_only_the_combiner_s_number_decides() -> None:
    env = ledger()
    state = start(env)
    noted = env.step(state, dict.fromkeys(READERS, "nothing here")).state
    end = env.step(noted, {"combiner": str(state.sheet.truth)})
    assert end.rewards.team == Scored(1.0)
    assert env.answer(end.state, "combiner") == str(state.sheet.truth)
    end = env.step(noted, {"combiner": str(state.sheet.truth + 1)})
    assert end.rewards.team == Scored(0.0)
    assert not end.rewards.process


@pytest.mark.parametrize("reply", ["", "-5", "12 or 13", "1234567", "twelve", "١٢"])
def test_an_invalid_answer_is_penalized(reply: str) -> None:
    env = ledger(solo=True)
    end = env.step(start(env), {"reader": reply})
    assert end.rewards.process == {"reader": Scored(-0.1)}
    assert end.metrics["illegal"] == 1.0
    assert end.state.answer is None


def test_an_invalid_note_is_penalized_and_unseen() -> None:
    env = ledger()
    result = env.step(start(env), {"reader_1": "<b>", "reader_2": "5", "reader_3": "none"})
    assert result.rewards.process == {"reader_1": Scored(-0.1)}
    assert result.state.notes == (None, "5", "none")
    assert "<b>" not in env.observe(result.state, "combiner")[-1].text


def test_notes_count_as_right_only_with_what_their_part_holds() -> None:
    env = ledger(question="lookup")
    state = start(env)
    holder = next(role for role in READERS if state.sheet.wanted in dict(env.part_of(state, role)))
    right = dict.fromkeys(READERS, "none") | {holder: str(state.sheet.truth)}
    assert env.step(state, right).metrics["notes_right"] == 1.0
    wrong = env.step(state, dict.fromkeys(READERS, "7")).metrics["notes_right"]
    assert wrong == 0.0


def test_names_and_amounts_are_unique() -> None:
    for seed in range(50):
        sheet = make_sheet(seed, 60, 2, "largest")
        assert len(dict(sheet.rows)) == len({amount for _, amount in sheet.rows}) == 60
        assert sheet.truth == max(amount for _, amount in sheet.rows)


def test_amounts_have_the_configured_digits() -> None:
    sheet = start(ledger(num_digits=2)).sheet
    assert {len(str(amount)) for _, amount in sheet.rows} == {2}
    with pytest.raises(ValueError, match="num_digits = 2 allows 90 different amounts"):
        ledger(num_rows=91, num_digits=2)


def test_more_readers_than_entries_are_rejected() -> None:
    with pytest.raises(ValueError, match="num_rows is 2, but num_readers is 3"):
        ledger(num_rows=2)
