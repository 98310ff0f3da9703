"""A dataset and a reward function as an environment."""

from typing import Any

import numpy as np
import pytest

import pettingllms as pl
from pettingllms.envs import find_faults
from pettingllms.errors import DataError

SUMS = [{"prompt": f"{a} + 1 = ?", "answer": str(a + 1)} for a in range(20)]


def exact(reply: str, answer: str) -> float:
    return float(reply.strip() == answer)


def reward_of(env: Any, reply: str, at: int = 0) -> Any:
    state = env.reset(env.tasks("train")[at], 0)
    return env.step(state, {"assistant": reply}).rewards.agent["assistant"]


def test_it_keeps_the_environment_contract() -> None:
    assert find_faults(pl.single_turn(SUMS, exact)) == []


def test_the_reward_function_scores_the_reply_by_the_row() -> None:
    env = pl.single_turn(SUMS, exact)
    assert reward_of(env, "3", at=2) == pl.Scored(1.0)
    assert reward_of(env, "4", at=2) == pl.Scored(0.0)
    state = env.reset(env.tasks("train")[2], 0)
    assert [message.content for message in env.observe(state, "assistant")] == ["2 + 1 = ?"]
    after = env.step(state, {"assistant": "3"}).state
    assert env.acting(after) == ()
    assert env.success(after, "assistant")


def test_a_tenth_of_the_distinct_rows_is_held_out() -> None:
    env = pl.single_turn([*SUMS, *SUMS], exact)
    shown = {
        split: {task.data["prompt"] for task in env.tasks(split)} for split in ("train", "test")
    }
    assert (len(env.tasks("train")), len(env.tasks("test"))) == (36, 4)
    assert not shown["train"] & shown["test"]


def test_splits_of_a_dict_or_a_test_dataset_are_taken() -> None:
    for env in (
        pl.single_turn({"train": SUMS, "test": SUMS[:2]}, exact),
        pl.single_turn(iter(SUMS), exact, test_dataset=SUMS[:2]),
    ):
        assert (len(env.tasks("train")), len(env.tasks("test"))) == (20, 2)


@pytest.mark.parametrize(
    ("reward_fn", "reason"),
    [
        (lambda reply: 1 / 0, "ZeroDivisionError"),
        (lambda reply: None, "TypeError"),
        (lambda reply: float("nan"), "is not in"),
    ],
)
def test_a_reward_function_that_fails_is_a_failure_of_the_environment(
    reward_fn: Any, reason: str
) -> None:
    reward = reward_of(pl.single_turn(SUMS, reward_fn), "1")
    assert isinstance(reward, pl.Failed)
    assert reward.owner == "environment"
    assert reason in reward.reason


def test_a_reward_function_gets_the_columns_that_it_names() -> None:
    seen: list[Any] = []

    def everything(reply: str, **columns: Any) -> float:
        seen.append((reply, columns))
        return 0.0

    reward_of(pl.single_turn(SUMS, everything), "1")
    assert seen == [("1", SUMS[0])]
    assert reward_of(pl.single_turn(SUMS, lambda reply, weight=2.0: weight), "") == pl.Scored(2.0)


def test_chat_messages_system_prompts_and_other_columns_are_shown() -> None:
    row = {"text": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    env = pl.single_turn([row], len, prompt_column="text", system_prompt="Be brief.")
    shown = env.observe(env.reset(env.tasks("train")[0], 0), "assistant")
    assert shown == [pl.system("Be brief."), pl.user("a"), pl.assistant("b")]


def test_numpy_values_become_plain_ones() -> None:
    env = pl.single_turn([{"prompt": "x", "n": np.int64(3), "v": np.arange(2)}], len)
    assert env.tasks("train")[0].data == {"prompt": "x", "n": 3, "v": [0, 1]}


def test_the_reference_player_replies_with_the_answer() -> None:
    env = pl.single_turn(SUMS, exact)
    state = env.reset(env.tasks("train")[4], 0)
    assert env.player("reference")(env, state, "assistant", None) == "5"


@pytest.mark.parametrize(
    ("rows", "reward_fn", "reason"),
    [
        ([], exact, "got no rows"),
        (["a"], exact, "row 0: got 'a'; expected a dict"),
        ([{"text": "a"}], len, "no column 'prompt' or 'question' among text"),
        ([{"prompt": "a", "answr": "1"}], exact, "needs 'answer'.*did you mean 'answr'"),
        ([{"prompt": "a", "x": object()}], len, "row 0: a value of type object"),
        (
            [{"prompt": "a"}, {"prompt": "b"}, {"question": "c"}],
            len,
            "row 0: column prompt is",
        ),
        ({"validation": []}, len, "one must be 'train'"),
    ],
)
def test_a_dataset_that_cannot_be_used_is_rejected(rows: Any, reward_fn: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        pl.single_turn(rows, reward_fn)
